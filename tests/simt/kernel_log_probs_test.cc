#include <doctest/doctest.h>

#include "kernels/cuda/logits.h"
#include "tests/simt/configurations.h"
#include "tests/simt/logits_case.h"

namespace headrace::simt {
namespace {

struct Report {
  std::vector<float> chosen;
  std::vector<int32_t> ids;
  std::vector<float> values;
};

constexpr int32_t kTop = 5;

struct Wanted {
  std::vector<int32_t> chosen;
  std::vector<int32_t> counts;
};

Report empty(const Wanted& wanted) {
  const size_t rows = wanted.chosen.size();
  return {std::vector<float>(rows, 77), std::vector<int32_t>(rows * kTop, 77),
          std::vector<float>(rows * kTop, 77)};
}

Report run(const LogitsCase& c, const Wanted& wanted) {
  const Report before = empty(wanted);
  const DeviceBuffer<float> x(c.x);
  const DeviceBuffer<int32_t> chosen(wanted.chosen);
  const DeviceBuffer<int32_t> counts(wanted.counts);
  const DeviceBuffer<float> chosen_out(before.chosen);
  const DeviceBuffer<int32_t> ids(before.ids);
  const DeviceBuffer<float> values(before.values);
  run_with_workspace(kernels::LogProbs{x.get(), chosen.get(), counts.get(), c.rows, c.vocab,
                                       c.stride, kTop, chosen_out.get(), ids.get(), values.get()});
  return {chosen_out.values(), ids.values(), values.values()};
}

Report expected(const LogitsCase& c, const Wanted& wanted) {
  Report out = empty(wanted);
  kernels::reference(kernels::LogProbs{c.x.data(), wanted.chosen.data(), wanted.counts.data(),
                                       c.rows, c.vocab, c.stride, kTop, out.chosen.data(),
                                       out.ids.data(), out.values.data()});
  return out;
}

void check_same(const LogitsCase& c, const Wanted& wanted) {
  const Report got = run(c, wanted);
  const Report want = expected(c, wanted);
  CHECK(got.ids == want.ids);
  // All in double, rounded once: a step of f32 at most.
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); i++) {
      CAPTURE(i);
      if (std::abs(a[i] - b[i]) > std::abs(b[i]) * 0x1p-23) CHECK(a[i] == b[i]);
    }
  };
  near(got.chosen, want.chosen);
  near(got.values, want.values);
}

TEST_CASE("log probs: vocabularies around a vector and a slice, rows that are left out") {
  each_configuration([] {
    for (const int32_t vocab : {1, 3, 4, 130, 4095, 4096, 4097, 8200}) {
      CAPTURE(vocab);
      const LogitsCase c(4, vocab, static_cast<uint32_t>(vocab));
      check_same(c, {{vocab - 1, 0, -1, vocab / 2}, {kTop, 1, 3, 0}});
    }
  });
}

TEST_CASE("log probs: equal logits by id, also across slices; signs of zero are equal") {
  LogitsCase c(3, 9000, 3);
  for (int32_t i = 0; i < c.vocab; i++) {
    c.at(0, i) = 1;
    c.at(1, i) = i % 2 == 0 ? 0.0f : -0.0f;
  }
  for (const int32_t id : {8999, 4096, 4095, 17}) c.at(2, id) = 50;
  check_same(c, {{8999, 1, 17}, {5, 5, 5}});
}

TEST_CASE("log probs: logits that are no numbers, or none but minus infinity") {
  LogitsCase c(6, 4200, 4);
  c.at(0, 4100) = NAN;
  c.at(1, 3) = INFINITY;
  for (int32_t i = 0; i < c.vocab; i++) c.at(2, i) = -INFINITY;
  for (int32_t i = 0; i < 4199; i++) c.at(3, i) = -INFINITY;
  for (int32_t i = 0; i < 4096; i++) c.at(4, i) = -INFINITY;
  c.at(5, 9) = 20000;  // all others are below the floor
  check_same(c, {{1, 2, 3, 4199, 5, 4}, {5, 5, 5, 5, 5, 5}});
}

TEST_CASE("log probs: a row's bits are the same whatever rows stand beside it") {
  const LogitsCase c(3, 4500, 5);
  const Report all = run(c, {{7, 8, 4400}, {5, 5, 5}});
  LogitsCase one(1, 4500, 5);
  for (int32_t i = 0; i < c.vocab; i++) one.at(0, i) = c.x[static_cast<size_t>(2 * c.stride + i)];
  const Report alone = run(one, {{4400}, {5}});
  CHECK(alone.chosen[0] == all.chosen[2]);
  for (size_t i = 0; i < kTop; i++) {
    CHECK(alone.ids[i] == all.ids[2 * kTop + i]);
    CHECK(alone.values[i] == all.values[2 * kTop + i]);
  }
}

TEST_CASE("log probs: what it does not do is refused, nothing is done at once") {
  const DeviceBuffer<float> x(std::vector<float>(64, 1.0f));
  const DeviceBuffer<int32_t> ints(std::vector<int32_t>(64, 1));
  const Workspace workspace(1 << 16);
  const TestStream stream;
  const kernels::LogProbs good{x.get(), ints.get(),   ints.get(),     1,           32, 32,
                               kTop,    x.get() + 32, ints.get() + 1, x.get() + 40};
  const auto enqueue = [&](auto change, size_t bytes = 1 << 16) {
    kernels::LogProbs op = good;
    change(op);
    return cuda::enqueue(op, workspace.context(stream, bytes));
  };
  using Op = kernels::LogProbs;
  CHECK(enqueue([](Op& op) { op.logits += 1; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.stride = 28; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.stride = 34; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.rows = -1; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.top = cuda::kLogProbsTopMax + 1; }) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op&) {}, cuda::workspace_bytes(good) - 1) == cudaErrorInvalidValue);
  CHECK(enqueue([](Op& op) { op.rows = 0; }) == cudaSuccess);
  CHECK(enqueue([](Op& op) { op.vocab = 0; }) == cudaSuccess);
  CHECK(enqueue([](Op& op) { op.top = 0; }) == cudaSuccess);
  stream.wait();
  CHECK(x.values() == std::vector<float>(64, 1.0f));
}

}  // namespace
}  // namespace headrace::simt
