#include "coordinator/text_model.h"

#include <utility>

#include "coordinator/limits.h"
#include "coordinator/text_stream.h"
#include "coordinator/tokenizer.h"
#include "protocol/codec.h"

namespace headrace::coordinator {
namespace {

class StreamCutter final : public TextCutter {
 public:
  explicit StreamCutter(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), stream_(*tokenizer_) {}

  // An output matrix may have more rows than the tokenizer has tokens: those give no text.
  std::string push(std::span<const Token> ids) override {
    std::string text;
    for (const Token& id : ids)
      if (Result<std::string> piece = stream_.push({&id, 1})) text += *piece;
    return text;
  }
  std::string finish() override { return stream_.finish(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  TextStream stream_;
};

class TokenizerModel final : public TextModel {
 public:
  explicit TokenizerModel(Tokenizer tokenizer)
      : tokenizer_(std::make_shared<const Tokenizer>(std::move(tokenizer))) {}

  Result<std::vector<Token>> encode(const Prompt& prompt, bool special) const override {
    if (const auto* text = std::get_if<std::string>(&prompt))
      return tokenizer_->encode(*text, special);
    if (const auto* messages = std::get_if<std::vector<ChatMessage>>(&prompt)) {
      auto ids = tokenizer_->encode_chat(*messages, true);
      if (ids) return ids;
      return error(ids.error().code, "prompt: " + ids.error().message);
    }
    return std::get<std::vector<Token>>(prompt);
  }
  Result<std::string> decode(std::span<const Token> ids) const override {
    size_t total = 0;  // a few ids may name long tokens
    for (const Token id : ids) {
      const Result<std::string_view> piece = tokenizer_->bytes_of(id, true);
      if (!piece) return piece.error();
      if ((total += piece->size()) > kDetokenizeBytesMax)
        return error(Errc::kInvalid, "ids: their text is longer than " +
                                         std::to_string(kDetokenizeBytesMax) + " bytes, the limit");
    }
    Result<std::string> bytes = tokenizer_->decode(ids, true);
    if (!bytes) return bytes;
    std::string text;
    Utf8Repair repair;
    repair.feed(*bytes, text);
    repair.finish(text);
    return text;
  }
  std::unique_ptr<TextCutter> cutter() const override {
    return std::make_unique<StreamCutter>(tokenizer_);
  }
  const std::vector<Token>& end_tokens() const override { return tokenizer_->end_tokens(); }
  bool has_chat() const override { return tokenizer_->chat_status().ok(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

Result<std::shared_ptr<const TextModel>> make_text_model(std::span<const std::byte> encoded) {
  Result<TokenizerData> data = decode_tokenizer(encoded);
  if (!data) return data.error();
  Result<Tokenizer> tokenizer = Tokenizer::make(std::move(*data));
  if (!tokenizer) return tokenizer.error();
  return std::shared_ptr<const TextModel>(std::make_shared<TokenizerModel>(std::move(*tokenizer)));
}

}  // namespace headrace::coordinator
