#include "coordinator/event_log.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "coordinator/limits.h"

namespace headrace::coordinator {
namespace {

struct Kept final : EventLog {
  void write(Event event, const std::string& line) override { lines.emplace_back(event, line); }
  std::vector<std::pair<Event, std::string>> lines;
};

}  // namespace

TEST_CASE("a flood of one kind is cut and counted, and hides no other kind") {
  const auto kept = std::make_shared<Kept>();
  EventWriter writer(kept);
  const Instant begin{1000s};
  for (size_t i = 0; i < kEventsPerSecond + 7; ++i)
    writer.write(Event::kFailed, begin + std::chrono::milliseconds(i), "attempt");
  CHECK(kept->lines.size() == kEventsPerSecond);
  writer.write(Event::kLost, begin + 50ms, "worker");
  REQUIRE(kept->lines.size() == kEventsPerSecond + 1);
  CHECK(kept->lines.back().second == "worker");
  writer.sweep(begin + 900ms);
  CHECK(kept->lines.size() == kEventsPerSecond + 1);
  writer.sweep(begin + 1s);
  REQUIRE(kept->lines.size() == kEventsPerSecond + 2);
  CHECK(kept->lines.back().first == Event::kFailed);
  CHECK(kept->lines.back().second.find("7 more lines") == 0);
  writer.sweep(begin + 5s);  // said once
  CHECK(kept->lines.size() == kEventsPerSecond + 2);
  writer.write(Event::kFailed, begin + 6s, "attempt");
  CHECK(kept->lines.back().second == "attempt");
}

TEST_CASE("what was left out is said before the next line of its kind") {
  const auto kept = std::make_shared<Kept>();
  EventWriter writer(kept);
  for (size_t i = 0; i < kEventsPerSecond + 1; ++i)
    writer.write(Event::kJoined, Instant{1000s}, "w");
  writer.write(Event::kJoined, Instant{1002s}, "x");
  REQUIRE(kept->lines.size() == kEventsPerSecond + 2);
  CHECK(kept->lines[kEventsPerSecond].second.find("1 more lines") == 0);
  CHECK(kept->lines.back().second == "x");
}

TEST_CASE("lines are short and nothing in them moves a terminal") {
  const auto kept = std::make_shared<Kept>();
  EventWriter writer(kept);
  writer.write(Event::kLost, Instant{1000s}, "a\x1b[2J\nb\x7f");
  CHECK(kept->lines.back().second == "a?[2J?b?");
  writer.write(Event::kLost, Instant{1000s}, std::string(100'000, 'x'));
  CHECK(kept->lines.back().second.size() == kEventBytesMax);
  EventWriter(nullptr).write(Event::kLost, Instant{1000s}, "nobody reads");
}

}  // namespace headrace::coordinator
