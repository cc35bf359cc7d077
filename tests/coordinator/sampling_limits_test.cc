#include "coordinator/sampling_limits.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

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

TEST_CASE("penalties, bias and alternatives up to their limits are allowed") {
  for (float p : {-2.0f, -0.0f, 1e-45f, 2.0f}) {
    CHECK(refusal(&Sampling::presence_penalty, p).empty());
    CHECK(refusal(&Sampling::frequency_penalty, p).empty());
  }
  for (float p : {0.01f, 1.0f, 10.0f}) {
    CHECK(refusal(&Sampling::repetition_penalty, p).empty());
  }
  Sampling s;
  s.logprobs = 20;
  s.bias = {{260, -100}, {0, 100}, {49, 0}};
  CHECK(check_sampling(s, 261).ok());
  s.bias.clear();
  for (Token id = 0; id < 1024; ++id) s.bias.push_back({1023 - id, 1});
  CHECK(check_sampling(s, 1024).ok());
}

TEST_CASE("penalties beyond their limits are refused by the client's name of the field") {
  CHECK(refusal(&Sampling::presence_penalty, 2.5f) == "presence_penalty is 2.5, allowed: -2 to 2");
  CHECK(refusal(&Sampling::presence_penalty, -kInf) ==
        "presence_penalty is -inf, allowed: -2 to 2");
  CHECK(refusal(&Sampling::presence_penalty, kNan) == "presence_penalty is nan, allowed: -2 to 2");
  CHECK(refusal(&Sampling::frequency_penalty, std::nextafter(-2.0f, -3.0f)) ==
        "frequency_penalty is -2.0000002, allowed: -2 to 2");
  CHECK(refusal(&Sampling::frequency_penalty, kNan) != "");
  CHECK(refusal(&Sampling::repetition_penalty, 0) ==
        "repetition_penalty is 0, allowed: 0.01 to 10");
  CHECK(refusal(&Sampling::repetition_penalty, -1) ==
        "repetition_penalty is -1, allowed: 0.01 to 10");
  CHECK(refusal(&Sampling::repetition_penalty, 10.5f) ==
        "repetition_penalty is 10.5, allowed: 0.01 to 10");
  CHECK(refusal(&Sampling::repetition_penalty, 1e-38f) != "");
  CHECK(refusal(&Sampling::repetition_penalty, kNan) != "");
  CHECK(refusal(&Sampling::repetition_penalty, kInf) != "");
}

TEST_CASE("a bias names tokens of the model, each once, within its range") {
  const auto why = [](std::vector<LogitBias> bias) {
    Sampling s;
    s.bias = std::move(bias);
    const Status status = check_sampling(s, 261);
    if (status.ok()) return std::string();
    CHECK(status.code == Errc::kInvalid);
    return status.message;
  };
  CHECK(why({{1, 1}, {261, 5}}) == "logit_bias names token 261, allowed: 0 to 260");
  CHECK(why({{-1, 5}}) == "logit_bias names token -1, allowed: 0 to 260");
  CHECK(why({{49, 101}}) == "logit_bias of token 49 is 101, allowed: -100 to 100");
  CHECK(why({{49, -kInf}}) == "logit_bias of token 49 is -inf, allowed: -100 to 100");
  CHECK(why({{49, kNan}}) == "logit_bias of token 49 is nan, allowed: -100 to 100");
  CHECK(why({{7, 1}, {49, 1}, {7, 1}}) == "logit_bias names token 7 more than once, allowed: once");
  CHECK(why(std::vector<LogitBias>(1025)) == "logit_bias has 1025 entries, allowed: up to 1024");
}

TEST_CASE("more alternatives than can be reported are refused") {
  Sampling s;
  s.logprobs = 21;
  CHECK(check_sampling(s, 261).message == "logprobs is 21, allowed: 0 to 20");
  s.logprobs = 4'000'000'000;
  CHECK(check_sampling(s, 261).message == "logprobs is 4000000000, allowed: 0 to 20");
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
