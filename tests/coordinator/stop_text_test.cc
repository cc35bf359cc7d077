#include "coordinator/stop_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace headrace::coordinator {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const Outcome&) const = default;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The rule, spelled out: the first place at which some stop text is complete, the longest there.
Outcome by_rule(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (ends_with(std::string_view(text).substr(0, end), stop))
        longest = std::max(longest, stop.size());
    if (longest > 0) return {text.substr(0, include ? end : end - longest), true};
  }
  return {text, false};
}

// How much of the end of `text` may still become a stop text.
size_t undecided(std::string_view text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops)
    for (size_t n = 1; n < stop.size(); ++n)
      if (ends_with(text, std::string_view(stop).substr(0, n))) most = std::max(most, n);
  return most;
}

Outcome run(const std::string& text, const std::vector<std::string>& stops, bool include = false,
            size_t step = 1) {
  StopText finder(stops, include);
  Outcome out;
  for (size_t at = 0; at < text.size(); at += step)
    finder.push(std::string_view(text).substr(at, step), out.text);
  out.stopped = finder.stopped();
  if (!out.stopped) finder.finish(out.text);
  return out;
}

}  // namespace

TEST_CASE("an answer ends before its stop text, or behind it") {
  const std::string az = "BCDEFGHIJKLMNOPQRSTUVWXYZ";
  CHECK(run(az, {"GHI"}) == Outcome{"BCDEF", true});
  CHECK(run(az, {"GHI"}, true) == Outcome{"BCDEFGHI", true});
  CHECK(run(az, {"GHX"}) == Outcome{az, false});
  CHECK(run(az, {}) == Outcome{az, false});
  CHECK(run("END", {"N"}, false, 3) == Outcome{"E", true});
  CHECK(run(az, {"GHI", "H"}) == Outcome{"BCDEFG", true});  // complete first
  CHECK(run(az, {"I", "GHI"}) == Outcome{"BCDEF", true});   // complete together: the longer
  CHECK(run("aaab", {"aab"}) == Outcome{"a", true});        // begins inside of a false start
  CHECK(run("ababac", {"abac"}) == Outcome{"ab", true});
}

TEST_CASE("nothing of a stop text is let out before it is decided, and no more is held back") {
  StopText finder({"GHI", "FGX"}, false);
  std::string out;
  finder.push("BCDEFG", out);
  CHECK(out == "BCDE");  // FG may become FGX
  finder.push("H", out);
  CHECK(out == "BCDEF");
  finder.push("J", out);
  CHECK(out == "BCDEFGHJ");
}

TEST_CASE("random texts: as the rule says, however they are cut") {
  std::mt19937 random(7);
  const auto word = [&](size_t least, size_t most) {
    std::string s(least + random() % (most - least + 1), 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 3);
    return s;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = word(0, 40);
    std::vector<std::string> stops;
    for (size_t i = 0, n = 1 + random() % 4; i < n; ++i) stops.push_back(word(1, 6));
    const bool include = random() % 2 == 0;
    const Outcome right = by_rule(text, stops, include);
    stopped += right.stopped ? 1 : 0;
    StopText finder(stops, include);
    Outcome got;
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min(text.size() - at, size_t{1} + random() % 5);
      finder.push(std::string_view(text).substr(at, n), got.text);
      at += n;
      if (finder.stopped()) break;
      const std::string_view seen = std::string_view(text).substr(0, at);
      REQUIRE(got.text == seen.substr(0, seen.size() - undecided(seen, stops)));
    }
    got.stopped = finder.stopped();
    if (!got.stopped) finder.finish(got.text);
    REQUIRE(got == right);
  }
  CHECK(stopped > 500);
}

}  // namespace headrace::coordinator
