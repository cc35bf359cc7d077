#include <doctest/doctest.h>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

constexpr float kInf = HUGE_VALF;

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_reference_device(1));
  for (CpuPath path : paths())
    for (int threads : {1, 2}) all.push_back(make_cpu_device(path, threads));
  return all;
}

// `rows[r]` are the edits of row r. All devices must give the same bits.
std::vector<float> adjusted(const std::vector<float>& logits, int32_t vocab, int64_t stride,
                            const std::vector<std::vector<LogitEdit>>& rows) {
  std::vector<LogitEdit> edits;
  std::vector<int32_t> begins{0};
  for (const auto& row : rows) {
    edits.insert(edits.end(), row.begin(), row.end());
    begins.push_back(static_cast<int32_t>(edits.size()));
  }
  std::vector<float> first;
  for (const auto& device : devices()) {
    Array<float> x(logits.size());
    std::copy(logits.begin(), logits.end(), x.begin());
    device->run(AdjustLogits{x.data(), edits.data(), begins.data(),
                             static_cast<int32_t>(rows.size()), vocab, stride});
    CHECK(x.guarded());
    const std::vector<float> got(x.begin(), x.end());
    if (first.empty()) first = got;
    CHECK(same_bits(got.data(), first.data(), got.size()));
  }
  return first;
}

float one(float logit, float divide, float add) {
  return adjusted({logit}, 1, 1, {{{0, divide, add}}})[0];
}

}  // namespace

TEST_CASE("division above zero, multiplication below, then the sum") {
  CHECK(one(6, 2, 0) == 3);
  CHECK(one(-6, 2, 0) == -12);
  CHECK(one(0, 2, 0) == 0);
  CHECK(one(6, 0.5f, 0) == 12);
  CHECK(one(-6, 0.5f, 0) == -3);
  CHECK(one(6, 2, -4) == -1);  // the sum comes after: its sign does not choose
  CHECK(one(-6, 2, 20) == 8);
  CHECK(one(1.5f, 1, 0.25f) == 1.75f);
}

TEST_CASE("one rounding, at the end") {
  // 1/3 in float plus 1e-8 would be lost if the quotient were rounded first and the sum again.
  const float third = one(1, 3, 1e-8f);
  CHECK(third == static_cast<float>(1.0 / 3 + 1e-8f));
  CHECK(one(16777216, 1, 1) == 16777216);  // 2^24 + 1 rounds to even
}

TEST_CASE("masked logits stay masked, NaN stays NaN") {
  CHECK(one(-kInf, 1.5f, 100) == -kInf);
  CHECK(one(kInf, 1.5f, -100) == kInf);
  CHECK(std::isnan(one(kNan, 1.5f, 1)));
  CHECK(one(3e38f, 0.1f, 0) == kInf);  // past the floats: Sample refuses it
}

TEST_CASE("only named ids of their own row change, whatever the stride") {
  const int32_t vocab = 5;
  const int64_t stride = 8;
  std::vector<float> x(4 * 8);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  auto wanted = x;
  wanted[0 * 8 + 0] += 10;
  wanted[0 * 8 + 4] = 4 / 2.0f + 20;
  wanted[2 * 8 + 3] -= 1;
  wanted[3 * 8 + 4] = 28 / 4.0f;
  CHECK(adjusted(x, vocab, stride, {{{0, 1, 10}, {4, 2, 20}}, {}, {{3, 1, -1}}, {{4, 4, 0}}}) ==
        wanted);
}

TEST_CASE("nothing to edit is nothing done") {
  const std::vector<float> x{1, 2, 3, 4};
  CHECK(adjusted(x, 2, 2, {{}, {}}) == x);
  CHECK(adjusted(x, 4, 4, {}) == x);
}

TEST_CASE("every id of a vocabulary, many rows") {
  std::mt19937 rng(2);
  const int32_t vocab = 3001, rows = 9;
  const auto random = random_floats(static_cast<size_t>(vocab * rows), rng, 5);
  const std::vector<float> x(random.begin(), random.end());
  auto wanted = x;
  std::vector<std::vector<LogitEdit>> edits(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (int32_t id = static_cast<int32_t>(r); id < vocab; id += 1 + static_cast<int32_t>(r)) {
      const LogitEdit e{id, 1.0f + static_cast<float>(id % 7) / 4, static_cast<float>(id % 5) - 2};
      edits[r].push_back(e);
      float& v = wanted[r * vocab + static_cast<size_t>(id)];
      v = static_cast<float>((v > 0 ? double{v} / e.divide : double{v} * e.divide) + e.add);
    }
  }
  CHECK(adjusted(x, vocab, vocab, edits) == wanted);
}

TEST_CASE("it costs what the edits touch") {
  const int32_t begins[] = {0, 3, 3, 7};
  const AdjustLogits op{nullptr, nullptr, begins, 3, 1000, 1000};
  CHECK(cost(op).activation_bytes == 7 * (sizeof(LogitEdit) + 8) + 4 * 4);
  CHECK(cost(op).flops == 14);
}
