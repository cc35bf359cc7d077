#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "coordinator/event_log.h"

namespace headrace::cli {

// What happens in a coordinator, for people: a line an event, its time (UTC) in front.
class OperatorLog final : public coordinator::EventLog {
 public:
  using Say = std::function<void(std::string_view)>;
  // `supervised`: who started this process tells by itself when the cluster is ready and who
  // joined; what comes before the first time it is ready is not said.
  OperatorLog(bool supervised, Say say) : supervised_(supervised), say_(std::move(say)) {}
  void write(coordinator::Event event, const std::string& line) override;

 private:
  bool supervised_;
  bool was_ready_ = false;
  Say say_;
};

// "2026-11-30T02:50:07.123Z": milliseconds since 1970.
std::string utc_time(int64_t milliseconds);

}  // namespace headrace::cli
