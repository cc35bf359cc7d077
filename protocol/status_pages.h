#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "protocol/strand.h"

namespace headrace {

// How a process stands, for /ready and /health.
struct ServiceState {
  bool ready = false;
  std::string why = "starting";  // while not ready
  bool draining = false;
  double loaded = 1;  // share of the model that is loaded, 0..1
};

// The last word of an actor about its process; told and read on any thread, never waited for.
class StatusBoard {
 public:
  void set(ServiceState state) {
    const std::lock_guard lock(mutex_);
    state_ = std::move(state);
    told_ = std::chrono::steady_clock::now();
  }
  // Changes only how far loading is.
  void set_loaded(double share) {
    const std::lock_guard lock(mutex_);
    state_.loaded = share;
  }
  // Since the last set(), or since this was made.
  Duration age() const {
    const std::lock_guard lock(mutex_);
    return std::chrono::steady_clock::now() - told_;
  }
  ServiceState get() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  mutable std::mutex mutex_;
  ServiceState state_;
  Instant told_ = std::chrono::steady_clock::now();
};

// A JSON string with its quotes. The text is UTF-8 of our own or of the operator.
std::string json_string(std::string_view text);

// What there is to see. The functions are called on the server's thread and may throw: that is 503.
struct StatusPages {
  std::function<std::string()> metrics;  // /metrics; Prometheus' text format
  std::function<ServiceState()> state;   // /health, /ready
  std::string version_json = "{}";       // /version
  std::map<std::string, std::function<std::string()>, std::less<>> json;  // further paths
};

inline constexpr size_t kStatusHeadMax = 8u << 10;  // bytes of request line and headers
inline constexpr size_t kStatusPathMax = 1u << 10;
inline constexpr int kRetryAfterSeconds = 1;  // said with each 503

// The whole answer to one request, status line to last byte. `head` ends with its empty line; a
// pure function of both. HTTP/1.0 and 1.1, GET and HEAD, no body; paths:
//   /metrics /live /version    200
//   /ready                     200, or 503 with the reason and Retry-After
//   /health                    the same
//   those of StatusPages.json  200
// any other                    404 with what there is, and what /ready says
std::string status_answer(std::string_view head, const StatusPages& pages);
// To a head of more than kStatusHeadMax bytes: 414 if its path alone is too long, else 431.
std::string status_answer_too_long(std::string_view begun);

}  // namespace headrace
