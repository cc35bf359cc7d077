#include "coordinator/event_log.h"

#include <utility>

#include "coordinator/limits.h"

namespace headrace::coordinator {
namespace {

constexpr Duration kWindow = 1s;

std::string printable(std::string line) {
  if (line.size() > kEventBytesMax) line = line.substr(0, kEventBytesMax - 3) + "...";
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return line;
}

}  // namespace

std::string_view name(Event event) {
  switch (event) {
    case Event::kJoined:
      return "joined";
    case Event::kRefused:
      return "refused";
    case Event::kLost:
      return "lost";
    case Event::kDrain:
      return "drain";
    case Event::kFailed:
      return "failed";
    case Event::kCluster:
      return "cluster";
  }
  return "?";
}

void EventWriter::close(Event event, Instant now) {
  Kind& kind = kinds_[static_cast<size_t>(event)];
  if (now - kind.since < kWindow) return;
  const uint64_t left_out = std::exchange(kind.left_out, 0);
  kind.since = now;
  kind.written = 0;
  if (left_out == 0) return;
  ++kind.written;
  log_->write(event, std::to_string(left_out) + " more lines of this kind (" +
                         std::string(name(event)) + ") were left out, the limit is " +
                         std::to_string(kEventsPerSecond) + " a second");
}

void EventWriter::write(Event event, Instant now, std::string line) {
  if (!log_) return;
  close(event, now);
  Kind& kind = kinds_[static_cast<size_t>(event)];
  if (kind.written >= kEventsPerSecond) {
    ++kind.left_out;
    return;
  }
  ++kind.written;
  log_->write(event, printable(std::move(line)));
}

void EventWriter::sweep(Instant now) {
  if (!log_) return;
  for (size_t i = 0; i < kinds_.size(); ++i)
    if (kinds_[i].left_out > 0) close(static_cast<Event>(i), now);
}

}  // namespace headrace::coordinator
