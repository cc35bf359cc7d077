#include "coordinator/tagged_text.h"

#include <doctest/doctest.h>

#include <chrono>

using namespace headrace::coordinator;

namespace {

// "T:" and "U:" before each run of the template and of the user.
std::string shown(const TaggedText& text) {
  std::string out;
  size_t at = 0;
  for (const auto& run : text.runs()) {
    out += run.from_template ? "T:" : "U:";
    out += text.str().substr(at, run.end - at) + ";";
    at = run.end;
  }
  CHECK(at == text.size());
  return out;
}

TaggedText mixed() {
  TaggedText text("<a>", true);
  text.append(TaggedText("  user é ", false));
  text.append("</a>", true);
  return text;
}

std::string parts(const std::vector<TaggedText>& list) {
  std::string out;
  for (const auto& part : list) out += "[" + shown(part) + "]";
  return out;
}

}  // namespace

TEST_CASE("runs of one origin are joined, and slices keep them") {
  TaggedText text;
  text.append("a", true);
  text.append("b", true);
  text.append("", false);
  text.append("c", false);
  CHECK(shown(text) == "T:ab;U:c;");
  CHECK(shown(mixed()) == "T:<a>;U:  user é ;T:</a>;");
  CHECK(shown(mixed().slice(2, 5)) == "T:>;U:  ;");
  CHECK(shown(mixed().slice(5, 5)) == "");
  CHECK(shown(mixed().slice(3, 9)) == "U:  user;");
  CHECK(mixed().from_template(2));
  CHECK(!mixed().from_template(3));
}

TEST_CASE("strip") {
  const TaggedText text("\u00a0 é\n\t", false);
  CHECK(strip(text, nullptr, true, true).str() == "é");
  CHECK(strip(text, nullptr, true, false).str() == "é\n\t");
  CHECK(strip(text, nullptr, false, true).str() == "\u00a0 é");
  const std::string set = "éx";
  CHECK(strip(TaggedText("xéaxé", false), &set, true, true).str() == "a");
  CHECK(strip(TaggedText("  ", false), nullptr, true, true).size() == 0);
}

TEST_CASE("split") {
  const std::string comma = ",";
  CHECK(parts(split(TaggedText("a,b,,c", false), &comma, -1)) == "[U:a;][U:b;][][U:c;]");
  CHECK(parts(split(TaggedText("a,b,c", false), &comma, 1)) == "[U:a;][U:b,c;]");
  CHECK(parts(split(TaggedText("", false), &comma, -1)) == "[]");
  CHECK(parts(split(TaggedText("  a b \n c ", true), nullptr, -1)) == "[T:a;][T:b;][T:c;]");
  CHECK(parts(split(TaggedText(" a b  c ", true), nullptr, 1)) == "[T:a;][T:b  c;]");
}

TEST_CASE("what is put in by a replacement is of its own origin") {
  CHECK(shown(replace(TaggedText("x<y<z", false), "<", TaggedText("&lt;", true))) ==
        "U:x;T:&lt;;U:y;T:&lt;;U:z;");
  CHECK(replace(TaggedText("éb", false), "", TaggedText("-", false)).str() == "-é-b-");
  CHECK(replaced_bytes(TaggedText("éb", false), "", 1) == 6);
  CHECK(replaced_bytes(TaggedText("x<y<z", false), "<", 4) == 11);
}

TEST_CASE("upper and lower case") {
  CHECK(shown(with_case(mixed(), LetterCase::kUpper)) == "T:<A>;U:  USER É ;T:</A>;");
  CHECK(with_case(TaggedText("éCOLE", false), LetterCase::kCapital).str() == "École");
  CHECK(with_case(TaggedText("ÀB", false), LetterCase::kLower).str() == "àb");
}

TEST_CASE("search is linear whatever it meets") {
  CHECK(find_text("abcabc", "bc", 2) == 4);
  CHECK(find_text("abc", "x", 0) == std::string::npos);
  CHECK(find_text("abc", "", 3) == 3);
  CHECK(find_text("abc", "c", 4) == std::string::npos);
  const std::string text(1'000'000, 'a');
  const std::string needle = std::string(500'000, 'a') + "b";
  const auto begin = std::chrono::steady_clock::now();
  CHECK(find_text(text, needle, 0) == std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}
