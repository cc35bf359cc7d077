#include "coordinator/sampling_limits.h"

#include <array>
#include <charconv>
#include <string>

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
  return {};
}

}  // namespace headrace::coordinator
