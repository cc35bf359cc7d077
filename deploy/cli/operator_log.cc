#include "deploy/cli/operator_log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

namespace headrace::cli {

std::string utc_time(int64_t milliseconds) {
  const std::time_t seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[24], text[40];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(milliseconds % 1000));
  return text;
}

void OperatorLog::write(coordinator::Event event, const std::string& line) {
  using coordinator::Event;
  if (supervised_) {
    const bool first = !was_ready_;
    was_ready_ = was_ready_ || (event == Event::kCluster && line == coordinator::kClusterReady);
    if (event == Event::kJoined || (first && event != Event::kRefused)) return;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  say_(utc_time(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) + " " + line);
}

}  // namespace headrace::cli
