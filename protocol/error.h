#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

// What went wrong, sorted by what the receiver should do next.
enum class Errc : uint16_t {
  kOk,
  kInvalid,          // the input is wrong: tell the client, trying again will not help
  kNotFound,         // no such model, request, file
  kOverloaded,       // a stated limit is reached: later, or elsewhere
  kUnavailable,      // no worker can serve this now
  kCancelled,        // someone asked for it to end
  kDeadline,         // a stated wait ran out
  kDisconnected,     // the peer is gone: reconnect, then route again
  kStale,            // an older term, incarnation, attempt or generation: drop it
  kContextExceeded,  // prompt longer than the model's context; names both numbers
  kNumeric,          // NaN or infinity where a number was needed
  kInternal,         // our mistake or a broken device: report
  kUnknown,          // a newer peer's word: treat as kInternal
};

// Lower-case word used on the wire, in JSON and in logs, e.g. "context_length_exceeded".
std::string_view name(Errc code);

// An outcome: kOk, or a code and one clear line for a person. A value; cheap when ok.
struct [[nodiscard]] Status {
  Errc code = Errc::kOk;
  std::string message;  // names the field, limit or file; no trailing full stop or newline

  bool ok() const { return code == Errc::kOk; }
  bool operator==(const Status&) const = default;
};

inline Status error(Errc code, std::string message) { return {code, std::move(message)}; }

}  // namespace headrace
