#include "protocol/codec_parts.h"

namespace headrace {
namespace codec {

TokenizerData read_tokenizer(Cursor& c, wire::TokenizerData::Reader r) {
  TokenizerData data;
  data.model = c.at("model").text(r.getModel());
  data.pre = c.at("pre").text(r.getPre());
  c.at("tokens");
  const auto tokens = r.getTokens();
  data.tokens.reserve(c.size(tokens.size(), limits::kVocabulary));
  for (auto token : tokens) data.tokens.push_back(c.text(token));
  const Bytes kinds = c.at("kinds").data(r.getKinds(), limits::kVocabulary);
  if (kinds.size() != data.tokens.size())
    c.refuse(std::to_string(kinds.size()) + " kinds for " + std::to_string(data.tokens.size()) +
             " tokens");
  data.kinds.reserve(kinds.size());
  for (std::byte kind : kinds) {
    const auto value = static_cast<uint8_t>(kind);
    if (value < static_cast<uint8_t>(TokenKind::kNormal) ||
        value > static_cast<uint8_t>(TokenKind::kByte))
      c.refuse("unknown kind " + std::to_string(value));
    data.kinds.push_back(static_cast<TokenKind>(value));
  }
  const auto left = c.at("mergesLeft").tokens(r.getMergesLeft(), limits::kMerges);
  const auto right = c.at("mergesRight").tokens(r.getMergesRight(), limits::kMerges);
  if (left.size() != right.size())
    c.refuse(std::to_string(right.size()) + " entries for " + std::to_string(left.size()) +
             " in mergesLeft");
  data.merges.reserve(left.size());
  for (size_t i = 0; i < left.size(); ++i) data.merges.emplace_back(left[i], right[i]);
  data.bos = r.getBos();
  data.eos = r.getEos();
  data.end_tokens = c.at("endTokens").tokens(r.getEndTokens(), limits::kEndTokens);
  data.add_bos = r.getAddBos();
  data.chat_template = c.at("chatTemplate").text(r.getChatTemplate());
  return data;
}

}  // namespace codec

Bytes encode(const TokenizerData& data) {
  size_t estimate = 4096 + data.merges.size() * 8 + data.kinds.size() + data.chat_template.size();
  for (const std::string& token : data.tokens) estimate += token.size() + 16;
  codec::Writer writer(estimate);
  auto b = writer.root<wire::TokenizerData>();
  b.setModel(codec::wire_text(data.model));
  b.setPre(codec::wire_text(data.pre));
  auto tokens = b.initTokens(static_cast<unsigned>(data.tokens.size()));
  for (unsigned i = 0; i < tokens.size(); ++i) tokens.set(i, codec::wire_text(data.tokens[i]));
  auto kinds = b.initKinds(static_cast<unsigned>(data.kinds.size()));
  for (unsigned i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<uint8_t>(data.kinds[i]);
  auto left = b.initMergesLeft(static_cast<unsigned>(data.merges.size()));
  auto right = b.initMergesRight(static_cast<unsigned>(data.merges.size()));
  for (unsigned i = 0; i < left.size(); ++i) {
    left.set(i, data.merges[i].first);
    right.set(i, data.merges[i].second);
  }
  b.setBos(data.bos);
  b.setEos(data.eos);
  codec::write(b.initEndTokens(static_cast<unsigned>(data.end_tokens.size())), data.end_tokens);
  b.setAddBos(data.add_bos);
  b.setChatTemplate(codec::wire_text(data.chat_template));
  return writer.finish();
}

}  // namespace headrace
