#include "protocol/error.h"

namespace headrace {

std::string_view name(Errc code) {
  switch (code) {
    case Errc::kOk:
      return "ok";
    case Errc::kInvalid:
      return "invalid_request";
    case Errc::kNotFound:
      return "not_found";
    case Errc::kOverloaded:
      return "overloaded";
    case Errc::kUnavailable:
      return "unavailable";
    case Errc::kCancelled:
      return "cancelled";
    case Errc::kDeadline:
      return "deadline_exceeded";
    case Errc::kDisconnected:
      return "disconnected";
    case Errc::kStale:
      return "stale";
    case Errc::kContextExceeded:
      return "context_length_exceeded";
    case Errc::kNumeric:
      return "numeric_error";
    case Errc::kInternal:
      return "internal_error";
    case Errc::kUnknown:
      return "unknown";
  }
  return "unknown";
}

}  // namespace headrace
