#include "coordinator/utf8.h"

#include <doctest/doctest.h>

#include <vector>

using namespace headrace::coordinator;

namespace {

std::string repaired(const std::vector<std::string>& pieces) {
  Utf8Repair repair;
  std::string out;
  for (const auto& piece : pieces) repair.feed(piece, out);
  repair.finish(out);
  return out;
}

const std::string kBad = "\xEF\xBF\xBD";

}  // namespace

TEST_CASE("every code point survives, surrogates do not exist") {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_code_point(text, c);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    const size_t bad = first_invalid_utf8(text);
    if ((bad == std::string::npos) == surrogate) FAIL("code point " << c);
    if (surrogate) continue;
    const CodePoint back = code_point_at(text, 0);
    if (back.value != c || back.bytes != text.size()) FAIL("code point " << c);
  }
}

TEST_CASE("the offset of the first broken character is found") {
  CHECK(first_invalid_utf8("") == std::string::npos);
  CHECK(first_invalid_utf8("aé🦙") == std::string::npos);
  CHECK(first_invalid_utf8("ab\xFF") == 2);
  CHECK(first_invalid_utf8("é\xE2\x82") == 2);          // unfinished at the end
  CHECK(first_invalid_utf8("a\xE2\x28\xA1") == 1);      // broken off
  CHECK(first_invalid_utf8("\xC0\xAF") == 0);           // overlong
  CHECK(first_invalid_utf8("a\xE0\x80\x80") == 1);      // overlong
  CHECK(first_invalid_utf8("a\xED\xA0\x80") == 1);      // surrogate
  CHECK(first_invalid_utf8("a\xF4\x90\x80\x80") == 1);  // past U+10FFFF
  CHECK(first_invalid_utf8("ab\x80") == 2);             // stray
}

TEST_CASE("a look at broken text stays inside of it") {
  const std::string text = "\xF0\x9F";
  CHECK(code_point_at(text, 0).bytes == 1);
  CHECK(code_point_at(text, 1).bytes == 1);
}

TEST_CASE("characters are counted and addressed") {
  CHECK(count_code_points("aé🦙") == 3);
  CHECK(bytes_of_code_points("aé🦙", 0) == 0);
  CHECK(bytes_of_code_points("aé🦙", 2) == 3);
  CHECK(bytes_of_code_points("aé🦙", 3) == 7);
  CHECK(bytes_of_code_points("aé🦙", 9) == 7);
}

// The right values are those of Unicode's table 3-8 and of Python's decoder, which follows it.
TEST_CASE("each maximal part of a broken character becomes one replacement") {
  CHECK(repaired({"\xE2\x82"}) == kBad);
  CHECK(repaired({"\xFF,"}) == kBad + ",");
  CHECK(repaired({"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"}) ==
        "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  CHECK(repaired({"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"}) ==
        kBad + kBad + kBad + kBad + kBad + kBad + kBad + kBad + "A");
  CHECK(repaired({"\xED\xA0\x80"}) == kBad + kBad + kBad);
  CHECK(repaired({"\xF0\x9F\xA6", "\xF0\x9F\xA6\x99"}) == kBad + "🦙");
  CHECK(repaired({std::string("a\0b", 3)}) == std::string("a\0b", 3));
}

TEST_CASE("where the bytes are cut makes no difference and every piece is valid") {
  const std::string text = "aé\xE2\x82\xFF🦙\xF0\x9F\xA6世\xC3";
  std::string whole = repaired({text});
  for (size_t width = 1; width <= text.size(); ++width) {
    Utf8Repair repair;
    std::string joined;
    for (size_t at = 0; at <= text.size(); at += width) {
      std::string piece;
      repair.feed(std::string_view(text).substr(at, width), piece);
      CHECK(first_invalid_utf8(piece) == std::string::npos);
      joined += piece;
    }
    repair.finish(joined);
    CHECK(joined == whole);
  }
}

TEST_CASE("a repair that has finished can start again") {
  Utf8Repair repair;
  std::string out;
  repair.feed("\xE2", out);
  repair.finish(out);
  repair.feed("\x82z", out);
  repair.finish(out);
  CHECK(out == kBad + kBad + "z");
}
