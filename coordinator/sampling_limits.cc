#include "coordinator/sampling_limits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "protocol/limits.h"

namespace headrace::coordinator {
namespace {

std::string shortest(float value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

Status outside(const char* field, float value, const std::string& range) {
  return error(Errc::kInvalid,
               std::string(field) + " is " + shortest(value) + ", allowed: " + range);
}

std::string either_sign(float limit) { return shortest(-limit) + " to " + shortest(limit); }

Status check_penalties(const Sampling& s) {
  if (!(std::abs(s.presence_penalty) <= kPenaltyMax)) {
    return outside("presence_penalty", s.presence_penalty, either_sign(kPenaltyMax));
  }
  if (!(std::abs(s.frequency_penalty) <= kPenaltyMax)) {
    return outside("frequency_penalty", s.frequency_penalty, either_sign(kPenaltyMax));
  }
  if (!(s.repetition_penalty >= kRepetitionMin && s.repetition_penalty <= kRepetitionMax)) {
    return outside("repetition_penalty", s.repetition_penalty,
                   shortest(kRepetitionMin) + " to " + shortest(kRepetitionMax));
  }
  return {};
}

Status check_bias(const std::vector<LogitBias>& bias, uint32_t vocab) {
  const auto bad = [](const std::string& why) {
    return error(Errc::kInvalid, "logit_bias " + why);
  };
  if (bias.size() > limits::kLogitBias) {
    return bad("has " + std::to_string(bias.size()) + " entries, allowed: up to " +
               std::to_string(limits::kLogitBias));
  }
  std::vector<Token> ids;
  ids.reserve(bias.size());
  for (const LogitBias& b : bias) {
    const std::string id = std::to_string(b.id);
    if (b.id < 0 || static_cast<uint32_t>(b.id) >= vocab) {
      return bad("names token " + id + ", allowed: 0 to " + std::to_string(vocab - 1));
    }
    if (!(std::abs(b.bias) <= kBiasMax)) {
      return bad("of token " + id + " is " + shortest(b.bias) +
                 ", allowed: " + either_sign(kBiasMax));
    }
    ids.push_back(b.id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) {
    return bad("names token " + std::to_string(*twice) + " more than once, allowed: once");
  }
  return {};
}

}  // namespace

// Each comparison is written so that NaN fails it.
Status check_sampling(const Sampling& sampling, uint32_t vocab) {
  if (vocab == 0) return error(Errc::kInvalid, "the model has no vocabulary to sample from");
  if (!(sampling.temperature >= 0 && sampling.temperature <= kTemperatureMax)) {
    return outside("temperature", sampling.temperature, "0 to " + shortest(kTemperatureMax));
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return outside("top_p", sampling.top_p, "above 0, up to 1");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return outside("min_p", sampling.min_p, "0 to 1");
  }
  if (sampling.logprobs > limits::kLogprobs) {
    return error(Errc::kInvalid, "logprobs is " + std::to_string(sampling.logprobs) +
                                     ", allowed: 0 to " + std::to_string(limits::kLogprobs));
  }
  if (Status status = check_penalties(sampling); !status.ok()) return status;
  return check_bias(sampling.bias, vocab);
}

}  // namespace headrace::coordinator
