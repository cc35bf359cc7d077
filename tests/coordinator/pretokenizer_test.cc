#include "coordinator/pretokenizer.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

using namespace headrace::coordinator;

namespace {

using Words = std::vector<std::string>;

Words words(PreTokenizer rule, std::string_view text) {
  Words out;
  WordSplitter splitter(rule, text);
  std::string_view word;
  while (splitter.next(word)) out.emplace_back(word);
  return out;
}
Words gpt2(std::string_view text) { return words(PreTokenizer::kGpt2, text); }
Words smollm(std::string_view text) { return words(PreTokenizer::kSmolLm, text); }

}  // namespace

TEST_CASE("only the known rules have a name") {
  CHECK(*pretokenizer_named("gpt-2") == PreTokenizer::kGpt2);
  CHECK(*pretokenizer_named("smollm") == PreTokenizer::kSmolLm);
  const auto other = pretokenizer_named("llama-bpe");
  REQUIRE(!other);
  CHECK(other.error().code == headrace::Errc::kInvalid);
  CHECK(other.error().message.find("'llama-bpe'") != std::string::npos);
}

TEST_CASE("GPT-2: words take the one space before them") {
  CHECK(gpt2("") == Words{});
  CHECK(gpt2("Hello world 123 !?") == Words{"Hello", " world", " 123", " !?"});
  CHECK(gpt2("abc123def") == Words{"abc", "123", "def"});
  CHECK(gpt2("a\u00a0b") == Words{"a", "\u00a0", "b"});
  CHECK(gpt2("é世🦙x") == Words{"é世", "🦙", "x"});
}

TEST_CASE("GPT-2: white space leaves its last character to the next word") {
  CHECK(gpt2("a  b") == Words{"a", " ", " b"});
  CHECK(gpt2("a   ") == Words{"a", "   "});
  CHECK(gpt2(" ") == Words{" "});
  CHECK(gpt2("a\nb") == Words{"a", "\n", "b"});
  CHECK(gpt2("a\n\nb") == Words{"a", "\n", "\n", "b"});
  CHECK(gpt2("a\n b") == Words{"a", "\n", " b"});
  CHECK(gpt2("a \t5") == Words{"a", " ", "\t", "5"});
  CHECK(gpt2("a\u2009\u3000b") == Words{"a", "\u2009", "\u3000", "b"});
}

TEST_CASE("GPT-2: contractions are split off in lower case only") {
  CHECK(gpt2("I'll we've don't") == Words{"I", "'ll", " we", "'ve", " don", "'t"});
  CHECK(gpt2("I'LL") == Words{"I", "'", "LL"});
  CHECK(gpt2("'sx ''s") == Words{"'s", "x", " ''", "s"});
  CHECK(gpt2("'r") == Words{"'", "r"});
}

TEST_CASE("SmolLM: numbers stand alone and end the piece before them") {
  CHECK(smollm("In 2024") == Words{"In", " ", "2", "0", "2", "4"});
  CHECK(smollm("a  5 b") == Words{"a", "  ", "5", " b"});
  CHECK(smollm("x²Ⅷ٣y") == Words{"x", "²", "Ⅷ", "٣", "y"});
  CHECK(smollm("5's") == Words{"5", "'s"});
  CHECK(smollm("no digits  here") == Words{"no", " digits", " ", " here"});
}

TEST_CASE("nothing is lost and time stays linear") {
  for (const char* unit : {"a", " ", "9", "' ", "é\n", "\u3000"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    for (const auto rule : {PreTokenizer::kGpt2, PreTokenizer::kSmolLm}) {
      const auto begin = std::chrono::steady_clock::now();
      size_t bytes = 0;
      WordSplitter splitter(rule, text);
      std::string_view word;
      while (splitter.next(word)) {
        if (word.empty() || word.data() != text.data() + bytes) FAIL("at byte " << bytes);
        bytes += word.size();
      }
      CHECK(bytes == text.size());
      // A guard against quadratic time, which would take minutes.
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    }
  }
}
