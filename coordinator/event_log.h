#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "protocol/strand.h"

namespace headrace::coordinator {

// What a line of the log is about. Each kind has its own rate: a flood of one hides no other.
enum class Event : uint8_t {
  kJoined,   // a worker was taken in
  kRefused,  // ... or not
  kLost,     // it left, died or fell silent
  kDrain,    // it takes nothing new from now on
  kFailed,   // an attempt or a hand-off failed
  kCluster,  // requests can be answered, or no longer
};
inline constexpr size_t kEvents = 6;
std::string_view name(Event event);
// The line of kCluster that says so.
inline constexpr const char* kClusterReady = "the cluster is ready";

// Where an operator reads what happened: one line an event, in words, without time and newline.
// Told on the Dispatcher's strand, which must not be kept waiting. Bodies: the CLI's.
class EventLog {
 public:
  virtual ~EventLog() = default;
  virtual void write(Event event, const std::string& line) = 0;
};

// The way to an EventLog: at most kEventsPerSecond lines of a kind within a second; of more it says
// how many were left out. Lines are cut at kEventBytesMax, and nothing in them moves a terminal:
// they may hold words of workers. On one strand.
class EventWriter {
 public:
  explicit EventWriter(std::shared_ptr<EventLog> log) : log_(std::move(log)) {}

  void write(Event event, Instant now, std::string line);
  // Says what was left out in a second that is over; to be called a few times a second.
  void sweep(Instant now);

 private:
  struct Kind {
    Instant since{};  // of the second that is counted
    size_t written = 0;
    uint64_t left_out = 0;
  };
  void close(Event event, Instant now);

  std::shared_ptr<EventLog> log_;  // null: nobody reads
  std::array<Kind, kEvents> kinds_{};
};

}  // namespace headrace::coordinator
