#include <doctest/doctest.h>

#include <algorithm>

#include "tests/simt/attention_case.h"
#include "tests/simt/configurations.h"
#include "tests/simt/numbers.h"

namespace headrace::simt {
namespace {

using cuda::AttentionSchedule;
using cuda::kCudaSlice;
using kernels::KvType;
using Shape = AttentionCase::Shape;

constexpr KvType kTypes[] = {KvType::kF16, KvType::kBf16, KvType::kFp8, KvType::kInt8};
constexpr AttentionSchedule kSchedules[] = {AttentionSchedule::kAuto, AttentionSchedule::kTiles,
                                            AttentionSchedule::kSplit, AttentionSchedule::kChunks};

// The same maths with operands rounded as the kernels round them, in one piece and otherwise in
// double: what precision alone costs.
std::vector<double> in_low_precision(AttentionCase& c) {
  const auto f16 = [](double x) {
    return double{kernels::half_to_float(kernels::float_to_half(static_cast<float>(x)))};
  };
  const auto bf16 = [](double x) {
    return double{kernels::bf16_to_float(kernels::float_to_bf16(static_cast<float>(x)))};
  };
  const kernels::KvLayout& l = c.layout;
  const auto step = c.step(c.tables().data());
  std::vector<double> y;
  for (int32_t r = 0; r < c.rows(); r++) {
    for (int32_t h = 0; h < c.heads; h++) {
      const float* q = c.qkv.data() + (r * (c.heads + 2 * l.kv_heads) + h) * l.head_dim;
      std::vector<double> sum(static_cast<size_t>(l.head_dim)), scores;
      double largest = -INFINITY, weights = 0;
      const auto at = [&](kernels::KvHalf half, int32_t key, int32_t d) {
        return double{kernels::kv_element(
            l,
            c.host_pool().head(step[static_cast<size_t>(r)].blocks[key / l.block_tokens],
                               AttentionCase::kLayer, h / (c.heads / l.kv_heads)),
            half, key % l.block_tokens, d)};
      };
      for (int32_t key = 0; key <= step[static_cast<size_t>(r)].position; key++) {
        double score = 0;
        for (int32_t d = 0; d < l.head_dim; d++) {
          const double x = q[d] * std::log2(std::exp(1.0)) / std::sqrt(l.head_dim);
          score += (l.type == KvType::kBf16 ? bf16(x) : f16(x)) * at(kernels::KvHalf::kKey, key, d);
        }
        scores.push_back(score);
        largest = std::max(largest, score);
      }
      for (size_t key = 0; key < scores.size(); key++) {
        const double p = std::exp2(scores[key] - largest);
        // 8-bit values' scales are rounded with p: anything but powers of two.
        const double scale = kernels::scaled(l.type) ? 1.1 + static_cast<double>(key % 7) / 8 : 1;
        const double low = l.type == KvType::kF16 ? f16(p) : bf16(p * scale) / scale;
        weights += p;
        for (int32_t d = 0; d < l.head_dim; d++) {
          sum[static_cast<size_t>(d)] +=
              low * at(kernels::KvHalf::kValue, static_cast<int32_t>(key), d);
        }
      }
      for (const double x : sum) y.push_back(weights > 0 ? x / weights : 0);
    }
  }
  return y;
}

double difference(const std::vector<double>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double squares = 0;
  for (size_t i = 0; i < a.size(); i++) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

// bf16 rows are the f32 ones rounded, their sums those of the rounded, zeros behind the width.
void check_rows(const AttentionCase& c, const AttentionOutput& out) {
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(c.width()));
  const auto width = static_cast<size_t>(c.width());
  for (size_t i = 0; i < out.bf16.size(); i++) {
    const size_t column = i % pitch;
    const uint16_t expected =
        column < width ? kernels::float_to_bf16(out.f32[i / pitch * width + column]) : uint16_t{0};
    if (out.bf16[i] != expected) FAIL("bf16 " << i << ": " << out.bf16[i]);
  }
  for (size_t g = 0; g < out.sums.size(); g++) {
    double sum = 0;
    for (size_t i = g * 32; i < g * 32 + 32; i++) sum += bf16_value(out.bf16[i]);
    if (!(std::abs(out.sums[g] - sum) <= 1e-5)) FAIL("sum " << g << ": " << out.sums[g]);
  }
}

// All schedules against the reference, and against each other to the bit.
AttentionOutput check_case(AttentionCase& c, bool in_all = true) {
  AttentionOnDevice device(c);
  const AttentionOutput first = device.run(AttentionSchedule::kAuto);
  check_rows(c, first);
  const auto truth = c.truth();
  const std::vector<double> exact(truth.begin(), truth.end());
  const double error = difference(exact, first.f32);
  std::vector<float> low;
  for (const double x : in_low_precision(c)) low.push_back(static_cast<float>(x));
  const double allowed = 2 * difference(exact, low) + 1e-6;
  CAPTURE(error);
  CHECK(error <= allowed);
  for (const AttentionSchedule schedule : kSchedules) {
    if (!in_all) break;
    CAPTURE(static_cast<int>(schedule));
    CHECK(device.run(schedule) == first);
  }
  return first;
}

TEST_CASE("attention: positions around every page and slice, every type and schedule") {
  for (const KvType type : kTypes) {
    CAPTURE(static_cast<int>(type));
    for (const int32_t tokens : {16, 64}) {
      AttentionCase c({type, 2, 1, 64, tokens}, 120, 1);
      for (const int32_t length : {1, tokens - 1, tokens, tokens + 1, kCudaSlice - 1, kCudaSlice,
                                   kCudaSlice + 1, 2 * kCudaSlice + 5}) {
        c.sequence(length - 1, length, static_cast<uint32_t>(length));
      }
      check_case(c);
    }
  }
}

TEST_CASE("attention: any group of heads") {
  for (const Shape& shape : {Shape{KvType::kF16, 1, 1, 64, 16},
                             {KvType::kF16, 9, 3, 64, 32},
                             {KvType::kF16, 8, 2, 64, 32},
                             {KvType::kInt8, 8, 1, 64, 16},
                             {KvType::kF16, 17, 1, 64, 16},
                             {KvType::kBf16, 40, 1, 64, 16}}) {
    CAPTURE(shape.heads);
    AttentionCase c(shape, 60, 2);
    c.sequence(kCudaSlice + 3, kCudaSlice + 7, 1);
    c.sequence(20, 21, 2);
    check_case(c);
  }
}

TEST_CASE("attention: any size of a head") {
  for (const KvType type : kTypes) {
    CAPTURE(static_cast<int>(type));
    for (const int32_t dims : {8, 16, 32, 40, 80, 96, 128}) {
      if (kernels::scaled(type) && dims % 16 != 0) continue;
      CAPTURE(dims);
      AttentionCase c({type, 6, 2, dims, 16}, 60, 3);
      c.sequence(kCudaSlice - 2, kCudaSlice + 2, 1);
      c.sequence(2, 3, 2);
      check_case(c, dims % 40 == 0 || dims == 16);
    }
  }
}

// Results of 70 rows over a prefix, in chunks.
std::vector<float> in_chunks(KvType type, int32_t chunk) {
  constexpr int32_t kFrom = kCudaSlice - 30, kTo = kFrom + 70;
  AttentionCase c({type, 3, 1, 32, 16}, 40, static_cast<uint32_t>(chunk));
  c.sequence(kFrom, kTo, 5, chunk);
  const auto y = AttentionOnDevice(c).run(AttentionSchedule::kAuto).f32;
  const auto width = static_cast<size_t>(c.width());
  std::vector<float> rows;
  for (size_t r = 0; r < y.size() / width; r++) {
    const bool padding = r % (static_cast<size_t>(chunk) + 1) == static_cast<size_t>(chunk);
    const auto from = y.begin() + static_cast<std::ptrdiff_t>(r * width);
    if (!padding) rows.insert(rows.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  REQUIRE(rows.size() == 70 * width);
  return rows;
}

TEST_CASE("attention: a chunk over a prefix is its tokens one by one") {
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    const auto alone = in_chunks(type, 1);
    for (const int32_t chunk : {5, 10, 11, 22, 43, 70}) {
      CAPTURE(chunk);
      CHECK(in_chunks(type, chunk) == alone);
    }
  }
}

TEST_CASE("attention: who else is in the step, where pages lie and spare blocks change nothing") {
  const Shape shape{KvType::kFp8, 4, 2, 64, 16};
  AttentionCase alone(shape, 60, 1);
  alone.sequence(130, 170, 7);
  const auto expected = AttentionOnDevice(alone).run(AttentionSchedule::kAuto);
  for (const uint32_t seed : {2u, 3u}) {
    AttentionCase c(shape, 120, seed);
    c.sequence(300, 301, 8);
    c.padding(2);
    c.sequence(130, 170, 7);
    c.sequence(9, 11, 9);
    c.padding(3);
    AttentionOnDevice device(c);
    const auto out = check_case(c, false);
    const auto width = static_cast<size_t>(c.width());
    for (size_t i = 0; i < 40 * width; i++) REQUIRE(out.f32[3 * width + i] == expected.f32[i]);
    for (size_t i = width; i < 3 * width; i++) REQUIRE(out.f32[i] == 0);
    for (const AttentionSchedule schedule : kSchedules) {
      for (const int32_t spread : {1, 2}) CHECK(device.run(schedule, spread, 3) == out);
    }
  }
}

TEST_CASE("attention: in every order of the emulator") {
  AttentionCase c({KvType::kF16, 4, 1, 32, 32}, 60, 4);
  c.sequence(kCudaSlice + 10, kCudaSlice + 32, 1);
  c.sequence(2 * kCudaSlice, 2 * kCudaSlice + 1, 2);
  AttentionCase scaled({KvType::kInt8, 4, 1, 32, 32}, 60, 4);
  scaled.sequence(kCudaSlice + 10, kCudaSlice + 32, 1);
  scaled.sequence(2 * kCudaSlice, 2 * kCudaSlice + 1, 2);
  each_configuration([&] {
    check_case(c, false);
    check_case(scaled, false);
  });
}

TEST_CASE("attention: equal keys give the mean, one large key its value") {
  for (const KvType type : kTypes) {
    AttentionCase c({type, 1, 1, 16, 16}, 20, 5);
    const size_t table = c.new_table(140);
    for (int32_t t = 0; t < 140; t++) {
      const std::vector<float> key(16, t == 99 ? 64.0f : 0.5f);
      const std::vector<float> value(16, t == 99 ? 8.0f : static_cast<float>(t % 2));
      c.put(table, 0, kernels::KvHalf::kKey, t, key.data());
      c.put(table, 0, kernels::KvHalf::kValue, t, value.data());
    }
    c.add_row(table, 97, std::vector<float>(16, 1.0f));
    c.add_row(table, 139, std::vector<float>(16, 100.0f));
    const auto y = AttentionOnDevice(c).run(AttentionSchedule::kAuto).f32;
    for (size_t d = 0; d < 16; d++) {
      CHECK(y[d] == doctest::Approx(0.5).epsilon(0.01));
      CHECK(y[16 + d] == doctest::Approx(8).epsilon(0.01));
    }
  }
}

TEST_CASE("attention: NaN in a query reaches its row and head alone") {
  AttentionCase c({KvType::kF16, 2, 1, 32, 16}, 20, 6);
  c.sequence(140, 144, 1);
  c.qkv[4 * 32 + 32 + 3] = NAN;  // row 1, head 1
  for (const AttentionSchedule schedule : kSchedules) {
    const auto y = AttentionOnDevice(c).run(schedule).f32;
    for (size_t i = 0; i < y.size(); i++) REQUIRE(std::isnan(y[i]) == (i / 32 == 3));
  }
}

TEST_CASE("attention: a key or value that is not finite stays in its sequence") {
  AttentionCase c({KvType::kInt8, 2, 1, 32, 16}, 40, 7);
  c.sequence(140, 141, 1);
  c.sequence(140, 141, 2);
  std::vector<float> bad(32, 1.0f);
  bad[5] = INFINITY;
  c.put(0, 0, kernels::KvHalf::kValue, 3, bad.data());
  const auto y = AttentionOnDevice(c).run(AttentionSchedule::kAuto).f32;
  for (size_t i = 0; i < y.size(); i++) REQUIRE(std::isnan(y[i]) == (i < 64));
}

TEST_CASE("attention: a wrong page, slot or layer is seen") {
  AttentionCase c({KvType::kF16, 2, 1, 32, 16}, 20, 8);
  c.sequence(40, 41, 1);
  const auto truth = c.truth();
  const std::vector<double> exact(truth.begin(), truth.end());
  AttentionOnDevice device(c);
  const double right = difference(exact, device.run(AttentionSchedule::kAuto).f32);
  AttentionCase other({KvType::kF16, 2, 1, 32, 16}, 20, 8);
  other.sequence(40, 41, 1);
  std::vector<float> row(32, 0.5f);
  other.put(0, 0, kernels::KvHalf::kKey, 17, row.data());
  CHECK(difference(exact, AttentionOnDevice(other).run(AttentionSchedule::kAuto).f32) > 4 * right);
}

TEST_CASE("attention: what it does not do is refused, nothing is done at once") {
  AttentionCase c({KvType::kF16, 2, 1, 32, 16}, 20, 9);
  c.sequence(4, 5, 1);
  AttentionOnDevice device(c);
  const DeviceBuffer<float> y(std::vector<float>(device.output_floats(), 7.0f));
  const TestStream stream;
  const auto enqueue = [&](const auto& change) {
    kernels::Attention op = device.op(y.get());
    cuda::AttentionWork work;
    change(op, work);
    return cuda::enqueue(op, work, device.context(stream.get()));
  };
  using Op = kernels::Attention;
  using Work = cuda::AttentionWork;
  CHECK(enqueue([](Op& op, Work&) { op.rows = 0; }) == cudaSuccess);
  constexpr auto kBad = cudaErrorInvalidValue;
  CHECK(enqueue([](Op& op, Work&) { op.kv.layout.order = kernels::KvOrder::kLanes; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.kv.layout.type = KvType::kF32; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.kv.layout.head_dim = 136; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.kv.layout.head_dim = 20; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.kv.layout.block_tokens = 8; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.kv.layout.kv_heads = 3; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.qkv += 1; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.y = {}; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) { op.y.sums = nullptr; }) == kBad);
  CHECK(enqueue([](Op&, Work& work) { work.spread = cuda::kAttentionSpreadMax + 1; }) == kBad);
  CHECK(enqueue([](Op& op, Work&) {
          op.kv.layout.type = KvType::kInt8;
          op.kv.layout.head_dim = 24;
        }) == kBad);
  stream.wait();
  CHECK(y.values() == std::vector<float>(device.output_floats(), 7.0f));
}

}  // namespace
}  // namespace headrace::simt
