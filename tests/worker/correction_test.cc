#include "worker/correction.h"

#include <doctest/doctest.h>

namespace headrace::worker {
namespace {

TimeModel model() {
  TimeModel m;
  m.limits.read = {{1 << 20, 1e10}};
  m.limits.f32_flops_per_second = 1e11;
  m.cost.weight_bytes = 100'000'000;
  m.cost.kv_token_bytes = 1000;
  m.cost.flops_per_token = 200'000'000;
  return m;
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

TEST_CASE("steps that take twice as long teach a factor of two, each kind its own") {
  CorrectionLearner learner(model());
  const double decode = seconds(predict_decode_step(model(), 4, 1000));
  const double prefill = seconds(predict_prefill(model(), 512, 128));
  REQUIRE(decode > 0);
  REQUIRE(prefill > 0);
  learner.learn({0, 0, 4, 1000}, 20 * decode);
  CHECK(learner.value() == Correction{});  // all was cold
  for (int i = 0; i < 5; ++i) learner.learn({0, 0, 4, 1000}, 2 * decode);
  CHECK(learner.value().decode == doctest::Approx(2).epsilon(0.01));
  CHECK(learner.value().prefill == 1);
  for (int i = 0; i < 6; ++i) learner.learn({512, 128, 0, 0}, 0.5 * prefill);
  CHECK(learner.value().prefill == doctest::Approx(0.5).epsilon(0.01));
  for (int i = 0; i < 200; ++i) learner.learn({0, 0, 4, 1000}, decode);
  CHECK(learner.value().decode == doctest::Approx(1).epsilon(0.01));
}

TEST_CASE("mixed steps teach how much longer they take than their parts, and nothing else") {
  CorrectionLearner learner(model());
  const StepShape mixed{100, 5000, 4, 1000};
  CHECK(learner.mixed_ratio() == 1);
  for (int i = 0; i < 40; ++i) learner.learn(mixed, 3 * seconds(learner.predict(mixed)));
  CHECK(learner.mixed_ratio() == doctest::Approx(3).epsilon(0.01));
  CHECK(learner.value() == Correction{});
}

TEST_CASE("absurd times and machines never measured teach nothing harmful") {
  CorrectionLearner learner(model());
  learner.learn({}, 10);
  learner.learn({0, 0, 4, 1000}, 0);
  CHECK(learner.value() == Correction{});
  for (int i = 0; i < 2; ++i) learner.learn({0, 0, 4, 1000}, 1e9);
  CHECK(learner.value().decode > 1);
  CHECK(learner.value().decode <= 100);
  CorrectionLearner blind(TimeModel{});
  blind.learn({0, 0, 4, 1000}, 1);
  CHECK(blind.value() == Correction{});
}

TEST_CASE("a slow machine takes smaller steps, one that was never measured what it is told") {
  CHECK(CorrectionLearner(TimeModel{}).paced_tokens(512) == 512);
  // 512 tokens are 1.02 s at 1e11 flops a second: half of them fit into a second.
  CorrectionLearner learner(model());
  CHECK(learner.paced_tokens(512) == 256);
  CHECK(learner.paced_tokens(64) == 64);
  const double prefill = seconds(predict_prefill(model(), 256, 0));
  for (int i = 0; i < 40; ++i) learner.learn({256, 0, 0, 0}, 4 * prefill);
  CHECK(learner.paced_tokens(512) == 64);
  for (int i = 0; i < 40; ++i) learner.learn({256, 0, 0, 0}, 1000 * prefill);
  CHECK(learner.paced_tokens(512) == CorrectionLearner::kPacedMin);
  CHECK(learner.paced_tokens(8) == 8);
}

TEST_CASE("a step's time is that of its two parts; nothing where nothing was measured") {
  TimeModel model;
  CHECK(CorrectionLearner(model).predict({100, 0, 3, 50}) == Duration{0});
  model.cost.weight_bytes = 1000;
  model.limits.read = {{1000, 1e3}};
  const CorrectionLearner learner(model);
  CHECK(learner.predict({1, 0, 0, 0}) == 1s);
  CHECK(learner.predict({0, 0, 1, 1}) == 1s);
  CHECK(learner.predict({1, 0, 1, 1}) == 2s);
  CHECK(learner.predict({}) == Duration{0});
}

}  // namespace
}  // namespace headrace::worker
