#pragma once

#include <cstdint>
#include <vector>

#include "protocol/ids.h"

namespace headrace {

// Added to the logit of one token.
struct LogitBias {
  Token id = 0;
  float bias = 0;  // [-100, 100]
  bool operator==(const LogitBias&) const = default;
};

// How the next token is chosen. Applied in this order: repetition penalty, frequency and presence
// penalty, bias; temperature, top-k, top-p, min-p; then one uniform of Philox(seed, index of the
// generated token). Checked at the edge (check_sampling).
struct Sampling {
  float temperature = 0;  // [0, 100]; 0 = greedy: the largest logit, ties to the lower id
  int32_t top_k = 0;      // <= 0 or >= vocab: all
  float top_p = 1;        // (0, 1]: smallest set whose probability reaches top_p
  float min_p = 0;        // [0, 1]: drop tokens less probable than min_p * the best
  uint64_t seed = 0;
  float presence_penalty = 0;     // [-2, 2]: subtracted from the logits of ids generated so far
  float frequency_penalty = 0;    // [-2, 2]: the same, times how often each was generated
  float repetition_penalty = 1;   // [0.01, 10]: ids of prompt and answer: logit / it if > 0, else * it
  std::vector<LogitBias> bias{};  // at most limits::kLogitBias, each id once
  uint32_t logprobs = 0;          // how many alternatives to report per token; 0: none, <= 20
  bool operator==(const Sampling&) const = default;
};

// A token and ln of its probability under the logits after penalties and bias, at temperature 1 and
// before top-k, top-p and min-p. Always finite: at least kLogprobFloor.
struct TokenLogprob {
  Token id = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};
constexpr float kLogprobFloor = -9999;

// What was asked for with Sampling::logprobs, for one generated token.
struct Logprobs {
  float chosen = 0;
  std::vector<TokenLogprob> top;  // the most probable first; equal ones: lower id first
  bool operator==(const Logprobs&) const = default;
};

// Why an answer ended.
enum class Finish : uint8_t {
  kNone,    // it has not
  kStop,    // the model's own end token, a stop token or a stop string
  kLength,  // max_tokens or the context is full
  kCancelled,
  kError,  // see the status beside it
};
const char* name(Finish finish);  // "stop", "length", ...

}  // namespace headrace
