#include "coordinator/sampling_limits.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace headrace;
using headrace::coordinator::check_sampling;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string refusal(float Sampling::*field, float value) {
  Sampling s;
  s.*field = value;
  const Status status = check_sampling(s, 261);
  if (status.ok()) return "";
  CHECK(status.code == Errc::kInvalid);
  return status.message;
}

}  // namespace

TEST_CASE("what protocol/generation.h allows is allowed") {
  CHECK(check_sampling({}, 261).ok());
  for (float t : {0.0f, 1e-38f, 1e-6f, 1e-4f, 1.0f, 100.0f}) {
    CHECK(refusal(&Sampling::temperature, t).empty());
  }
  for (float p : {1e-9f, 0.49f, 1.0f}) CHECK(refusal(&Sampling::top_p, p).empty());
  for (float p : {0.0f, 0.5f, 1.0f}) CHECK(refusal(&Sampling::min_p, p).empty());
  for (int32_t k : {-1, 0, 1, 9999999}) {
    Sampling s;
    s.top_k = k;
    CHECK(check_sampling(s, 261).ok());
  }
}

TEST_CASE("what lies outside is refused with field, value and limit") {
  CHECK(refusal(&Sampling::temperature, -1) == "temperature is -1, allowed: 0 to 100");
  CHECK(refusal(&Sampling::temperature, 1e9f) == "temperature is 1e+09, allowed: 0 to 100");
  CHECK(refusal(&Sampling::temperature, kNan) == "temperature is nan, allowed: 0 to 100");
  CHECK(refusal(&Sampling::temperature, kInf) == "temperature is inf, allowed: 0 to 100");
  CHECK(refusal(&Sampling::temperature, std::nextafter(100.0f, 200.0f)) != "");
  CHECK(refusal(&Sampling::top_p, 0) == "top_p is 0, allowed: above 0, up to 1");
  CHECK(refusal(&Sampling::top_p, 1.5f) == "top_p is 1.5, allowed: above 0, up to 1");
  CHECK(refusal(&Sampling::top_p, kNan) != "");
  CHECK(refusal(&Sampling::top_p, -kInf) != "");
  CHECK(refusal(&Sampling::min_p, -0.1f) == "min_p is -0.1, allowed: 0 to 1");
  CHECK(refusal(&Sampling::min_p, 1.1f) != "");
  CHECK(refusal(&Sampling::min_p, kNan) != "");
  CHECK(!check_sampling({}, 0).ok());
}
