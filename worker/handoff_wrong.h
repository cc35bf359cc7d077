#pragma once

#include <cstdint>
#include <string>

#include "protocol/result.h"

namespace headrace::worker {

// Of what came over a KV channel. Not kInvalid: the request is good, the channel is not, so it may
// be tried again elsewhere.
inline Status wrong(const std::string& what) {
  return error(Errc::kDisconnected, "what came over the KV channel is wrong: " + what);
}

inline std::string versus(uint64_t got, uint64_t wanted) {
  return std::to_string(got) + ", expected " + std::to_string(wanted);
}

}  // namespace headrace::worker
