#pragma once

#include <cstdint>

namespace headrace {

// How the next token is chosen. Applied in this order: temperature, top-k, top-p, min-p, then one
// uniform of Philox(seed, index of the generated token). Checked at the edge (check_sampling).
struct Sampling {
  float temperature = 0;  // [0, 100]; 0 = greedy: the largest logit, ties to the lower id
  int32_t top_k = 0;      // <= 0 or >= vocab: all
  float top_p = 1;        // (0, 1]: smallest set whose probability reaches top_p
  float min_p = 0;        // [0, 1]: drop tokens less probable than min_p * the best
  uint64_t seed = 0;
  bool operator==(const Sampling&) const = default;
};

// Why an answer ended.
enum class Finish : uint8_t {
  kNone,    // it has not
  kStop,    // the model's own end token (or, later, a stop string)
  kLength,  // max_tokens or the context is full
  kCancelled,
  kError,  // see the status beside it
};
const char* name(Finish finish);  // "stop", "length", ...

}  // namespace headrace
