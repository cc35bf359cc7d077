#include "coordinator/text_stream.h"

#include "tests/coordinator/text_support.h"

using namespace headrace;
using namespace headrace::coordinator;

namespace {

// The pieces that come out when the ids go in one by one, the last one at the end.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const Token& id : ids) pieces.push_back(value_of(stream.push({&id, 1})));
  pieces.push_back(stream.finish());
  for (const auto& piece : pieces) CHECK(first_invalid_utf8(piece) == std::string::npos);
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string out;
  for (const auto& piece : pieces) out += piece;
  return out;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("H04: a character made of several tokens comes whole") {
  const Tokenizer t = script_tokenizer();
  // What the script model answers to !, ?, @ and #.
  CHECK(pieces_of(t, {0xF0, 0x9F, 0xA6, 0x99, '.', kScriptEnd}) ==
        Pieces{"", "", "", "🦙", ".", "", ""});
  CHECK(pieces_of(t, {0xE4, 0xB8, 0x96, '.', kScriptEnd}) == Pieces{"", "", "世", ".", "", ""});
  CHECK(pieces_of(t, {0xE2, 0x82, kScriptEnd}) == Pieces{"", "", "", "\uFFFD"});
  CHECK(pieces_of(t, {0xFF, ',', kScriptEnd}) == Pieces{"\uFFFD", ",", "", ""});
  // max_tokens 2 on the first.
  CHECK(joined(pieces_of(t, {0xF0, 0x9F})) == "\uFFFD");
}

TEST_CASE("a broken character is replaced as soon as it cannot be mended") {
  const Tokenizer t = script_tokenizer();
  CHECK(pieces_of(t, {0xF0, 0x9F, 'x'}) == Pieces{"", "", "\uFFFDx", ""});
  CHECK(pieces_of(t, {0xE2, 0xE2, 0x82, 0xAC}) == Pieces{"", "\uFFFD", "", "€", ""});
}

TEST_CASE("control tokens give no text, also inside a character") {
  const Tokenizer t = script_tokenizer();
  CHECK(pieces_of(t, {kScriptStart, '~', kScriptEnd}) == Pieces{"", "~", "", ""});
  CHECK(joined(pieces_of(t, {0xC3, kScriptStart, 0xA9})) == "é");
  CHECK(joined(pieces_of(t, {0, 'a'})) == std::string("\0a", 2));
}

TEST_CASE("however the ids are cut into pushes, the text is that of all of them") {
  const Tokenizer t = script_tokenizer();
  const std::vector<Token> ids = {'a',  0xC3, 0xA9, 0xE2, 0x82, 260,  0xF0, 0x9F, 0xA6,
                                  0x99, 0xFF, 0x80, 0xE4, 0xB8, 0x96, 0xF0, 0x9F};
  std::string whole;
  Utf8Repair repair;
  repair.feed(value_of(t.decode(ids)), whole);
  repair.finish(whole);
  for (size_t width = 1; width <= ids.size(); ++width) {
    TextStream stream(t);
    std::string text;
    for (size_t at = 0; at < ids.size(); at += width) {
      const size_t n = std::min(width, ids.size() - at);
      text += value_of(stream.push(std::span(ids).subspan(at, n)));
    }
    CHECK(text + stream.finish() == whole);
  }
}

TEST_CASE("a stream rebuilt from the log goes on as the first would have") {
  const Tokenizer t = script_tokenizer();
  const std::vector<Token> ids = {'a', 0xF0, 0x9F, 0xA6, 0x99, 'b'};
  for (size_t logged = 0; logged <= ids.size(); ++logged) {
    TextStream first(t);
    const std::string before = value_of(first.push(std::span(ids).first(logged)));
    TextStream second(t);
    (void)value_of(second.push(std::span(ids).first(logged)));
    const std::string after = value_of(second.push(std::span(ids).subspan(logged)));
    CHECK(before + after + second.finish() == "a🦙b");
  }
}

TEST_CASE("ids out of range change nothing") {
  const Tokenizer t = script_tokenizer();
  TextStream stream(t);
  CHECK(value_of(stream.push(std::vector<Token>{0xC3})) == "");
  CHECK(!stream.push(std::vector<Token>{'x', 999}));
  CHECK(value_of(stream.push(std::vector<Token>{0xA9})) == "é");
}
