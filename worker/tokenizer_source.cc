#include "worker/tokenizer_source.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headrace::worker {
namespace {

constexpr std::string_view kPreTokenizers[] = {"smollm", "gpt-2"};

std::string key(std::string_view entry) { return "tokenizer.ggml." + std::string(entry); }

// Builds one TokenizerData step by step; each step fails with the file's name and the fault.
class Source {
 public:
  Source(const GgufFile& file, uint32_t rows) : file_(file), rows_(rows) {}

  Result<TokenizerData> read() {
    for (const auto step : {&Source::kind, &Source::tokens, &Source::kinds, &Source::merges,
                            &Source::specials, &Source::flags, &Source::chat_template})
      if (Status s = (this->*step)(); !s.ok()) return s;
    return std::move(data_);
  }

 private:
  Status kind() {
    const Result<std::string> model = file_.text(key("model"));
    if (!model) return model.error();
    if (*model != "gpt2")
      return file_.fault("tokenizer " + *model + " is not supported yet; supported: gpt2");
    const Result<std::string> pre = file_.text(key("pre"));
    if (!pre) return pre.error();
    if (std::find(std::begin(kPreTokenizers), std::end(kPreTokenizers), *pre) ==
        std::end(kPreTokenizers))
      return file_.fault("pre-tokenizer " + *pre +
                         " is not supported yet; supported: smollm, gpt-2");
    data_.model = *model;
    data_.pre = *pre;
    return {};
  }

  Status tokens() {
    const auto texts = file_.texts(key("tokens"));
    if (!texts) return texts.error();
    if (texts->empty()) return file_.fault("has a tokenizer without tokens");
    if (texts->size() > rows_)
      return file_.fault("has " + std::to_string(texts->size()) + " tokens, but only " +
                         std::to_string(rows_) + " rows of embeddings");
    data_.tokens.assign(texts->begin(), texts->end());
    return {};
  }

  Status kinds() {
    data_.kinds.assign(data_.tokens.size(), TokenKind::kNormal);
    if (file_.has(key("token_type"))) {
      const auto types = file_.integers(key("token_type"));
      if (!types) return types.error();
      if (types->size() != data_.tokens.size())
        return file_.fault("has " + std::to_string(data_.tokens.size()) + " tokens but " +
                           std::to_string(types->size()) + " token types");
      for (size_t i = 0; i < types->size(); i++) {
        if ((*types)[i] < 1 || (*types)[i] > 6)
          return file_.fault("token " + std::to_string(i) + " has type " +
                             std::to_string((*types)[i]) + "; possible are 1 to 6");
        data_.kinds[i] = static_cast<TokenKind>((*types)[i]);
      }
    }
    while (!data_.kinds.empty() && data_.kinds.back() == TokenKind::kUnused) {
      data_.kinds.pop_back();
      data_.tokens.pop_back();
    }
    if (data_.tokens.empty()) return file_.fault("has a tokenizer of unused tokens only");
    return index();
  }

  Status index() {
    ids_.reserve(data_.tokens.size());
    for (size_t i = 0; i < data_.tokens.size(); i++) {
      const std::string& text = data_.tokens[i];
      if (text.empty() || text.size() > kTokenBytesMax)
        return file_.fault("token " + std::to_string(i) + " has " + std::to_string(text.size()) +
                           " bytes; possible are 1 to " + std::to_string(kTokenBytesMax));
      const auto [it, fresh] = ids_.try_emplace(text, static_cast<Token>(i));
      if (!fresh)
        return file_.fault("tokens " + std::to_string(it->second) + " and " + std::to_string(i) +
                           " have the same text");
    }
    return {};
  }

  Status merges() {
    const auto texts = file_.texts(key("merges"));
    if (!texts) return texts.error();
    if (texts->size() > limits::kMerges)
      return file_.fault("has " + std::to_string(texts->size()) + " merges; the limit is " +
                         std::to_string(limits::kMerges));
    data_.merges.reserve(texts->size());
    for (size_t rank = 0; rank < texts->size(); rank++) {
      const std::string_view text = (*texts)[rank];
      const size_t gap = text.find(' ');  // the alphabet has no space of its own
      const std::string which = "merge " + std::to_string(rank);
      if (gap == std::string_view::npos || text.find(' ', gap + 1) != std::string_view::npos)
        return file_.fault(which + " is not two pieces with a space between");
      const Token left = id(text.substr(0, gap)), right = id(text.substr(gap + 1));
      const std::string joined =
          std::string(text.substr(0, gap)) + std::string(text.substr(gap + 1));
      if (left < 0 || right < 0 || id(joined) < 0)
        return file_.fault(which + " names a piece that is not in the vocabulary");
      data_.merges.emplace_back(left, right);
    }
    return {};
  }

  Status specials() {
    if (Status s = special("bos_token_id", data_.bos); !s.ok()) return s;
    if (Status s = special("eos_token_id", data_.eos); !s.ok()) return s;
    Token turn = -1, message = -1;
    if (Status s = special("eot_token_id", turn); !s.ok()) return s;
    if (Status s = special("eom_token_id", message); !s.ok()) return s;
    for (const Token t : {data_.eos, turn, message})
      if (t >= 0 && !std::count(data_.end_tokens.begin(), data_.end_tokens.end(), t))
        data_.end_tokens.push_back(t);
    return {};
  }

  Status special(std::string_view entry, Token& token) {
    if (!file_.has(key(entry))) return {};
    const Result<uint64_t> v = file_.integer(key(entry));
    if (!v) return v.error();
    if (*v >= data_.tokens.size())
      return file_.fault("metadata entry " + key(entry) + " is " + std::to_string(*v) +
                         ", but there are " + std::to_string(data_.tokens.size()) + " tokens");
    token = static_cast<Token>(*v);
    return {};
  }

  Status flags() {
    for (const auto* entry : {"add_bos_token", "add_eos_token"}) {
      if (!file_.has(key(entry))) continue;
      const Result<bool> v = file_.flag(key(entry));
      if (!v) return v.error();
      if (std::string_view(entry) == "add_bos_token")
        data_.add_bos = *v;
      else if (*v)
        return file_.fault("metadata entry " + key(entry) + " is true, which is not supported yet");
    }
    if (data_.add_bos && data_.bos < 0)
      return file_.fault("asks for a leading token but names none");
    return {};
  }

  Status chat_template() {
    const std::string entry = "tokenizer.chat_template";
    if (!file_.has(entry)) return {};
    const Result<std::string> text = file_.text(entry);
    if (!text) return text.error();
    if (text->size() > kTemplateBytesMax)
      return file_.fault("has a chat template of " + std::to_string(text->size()) +
                         " bytes; the limit is " + std::to_string(kTemplateBytesMax));
    data_.chat_template = *text;
    return {};
  }

  Token id(std::string_view text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? -1 : it->second;
  }

  const GgufFile& file_;
  uint32_t rows_;
  TokenizerData data_;
  std::unordered_map<std::string_view, Token> ids_;  // views of data_.tokens
};

}  // namespace

Result<TokenizerData> read_tokenizer(const GgufFile& file, uint32_t rows) {
  return Source(file, rows).read();
}

}  // namespace headrace::worker
