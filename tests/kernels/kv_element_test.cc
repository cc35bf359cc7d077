#include "kernels/kv_element.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/half.h"
#include "kernels/ops.h"
#include "tests/kernels/paged.h"

using namespace headrace::kernels;
using headrace::kernels::testing::PagedKv;

namespace {

// Every finite e4m3 value, ascending, by its definition alone.
std::vector<double> e4m3_values() {
  std::vector<double> all;
  for (int exponent = 0; exponent < 16; ++exponent) {
    for (int mantissa = 0; mantissa < 8; ++mantissa) {
      if (exponent == 15 && mantissa == 7) continue;
      const double m = mantissa / 8.0;
      all.push_back(exponent == 0 ? m * std::pow(2.0, -6) : (1 + m) * std::pow(2.0, exponent - 7));
    }
  }
  return all;
}

constexpr float kScaledMax[] = {448, 127};

std::vector<std::byte> head_of(const KvLayout& l) {
  return std::vector<std::byte>(l.head_bytes(), std::byte{0xff});
}

}  // namespace

TEST_CASE("e4m3: every value, both ways") {
  const auto values = e4m3_values();
  REQUIRE(values.size() == 127);
  for (int i = 0; i < 127; ++i) {
    const auto e = static_cast<uint8_t>(i);
    CHECK(e4m3_to_float(e) == values[static_cast<size_t>(i)]);
    CHECK(e4m3_to_float(static_cast<uint8_t>(e | 0x80)) == -values[static_cast<size_t>(i)]);
    CHECK(float_to_e4m3(e4m3_to_float(e)) == e);
  }
  CHECK(std::isnan(e4m3_to_float(0x7f)));
  CHECK(std::isnan(e4m3_to_float(0xff)));
  CHECK((float_to_e4m3(std::nanf("")) & 0x7f) == 0x7f);
}

TEST_CASE("e4m3: to nearest, ties to even, beyond the largest the largest") {
  const auto values = e4m3_values();
  for (int i = 0; i + 1 < 127; ++i) {
    const double low = values[static_cast<size_t>(i)], high = values[static_cast<size_t>(i) + 1];
    const auto middle = static_cast<float>((low + high) / 2);
    CHECK(float_to_e4m3(middle) == i + i % 2);
    CHECK(float_to_e4m3(std::nextafter(middle, 0.0f)) == i);
    CHECK(float_to_e4m3(std::nextafter(middle, 1000.0f)) == i + 1);
  }
  CHECK(float_to_e4m3(1e9f) == 126);
  CHECK(float_to_e4m3(-HUGE_VALF) == (126 | 0x80));
}

TEST_CASE("a scale is the least f16 that is not too small") {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> exponent(-25, 22);
  for (int i = 0; i < 20000; ++i) {
    const float largest = std::exp2(exponent(rng));
    for (const KvType type : {KvType::kFp8, KvType::kInt8}) {
      const double steps = kScaledMax[type == KvType::kInt8];
      const uint16_t h = kv_scale(type, largest);
      REQUIRE(half_to_float(h) * steps >= largest);
      REQUIRE(h > 0);
      REQUIRE(half_to_float(static_cast<uint16_t>(h - 1)) * steps < largest);
    }
  }
  CHECK(kv_scale(KvType::kInt8, 0) == 0);
  CHECK(kv_scale(KvType::kInt8, 127) == float_to_half(1));
  CHECK(kv_scale(KvType::kFp8, 448) == float_to_half(1));
  for (const float bad : {HUGE_VALF, std::nanf(""), 3e38f}) {
    CHECK(std::isnan(half_to_float(kv_scale(KvType::kFp8, bad))));
    CHECK(std::isnan(half_to_float(kv_scale(KvType::kInt8, bad))));
  }
}

TEST_CASE("rows of every type and order come back, and nothing else is written") {
  for (const KvOrder order : {KvOrder::kLanes, KvOrder::kRows}) {
    for (const KvType type :
         {KvType::kF16, KvType::kF32, KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
      CAPTURE(static_cast<int>(order));
      CAPTURE(static_cast<int>(type));
      const KvLayout l{type, 1, 1, 24, 16, order};
      auto head = head_of(l);
      std::mt19937 rng(2);
      std::normal_distribution<float> normal;
      std::vector<float> row(24);
      for (float& x : row) x = normal(rng);
      put_kv_row(l, head.data(), KvHalf::kKey, 3, row.data());
      put_kv_row(l, head.data(), KvHalf::kValue, 5, row.data());
      const float largest = std::fabs(*std::max_element(
          row.begin(), row.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
      double keys[24], values[24];
      get_kv_row(l, head.data(), KvHalf::kKey, 3, keys);
      get_kv_row(l, head.data(), KvHalf::kValue, 5, values);
      for (int32_t d = 0; d < 24; ++d) {
        const float x = row[static_cast<size_t>(d)];
        const double bound = type == KvType::kF32    ? 0
                             : type == KvType::kF16  ? std::fabs(x) * 0x1p-11
                             : type == KvType::kBf16 ? std::fabs(x) * 0x1p-8
                             : type == KvType::kFp8
                                 ? std::max(std::fabs(x) * 0x1p-4, largest * 0x1p-18)
                                 : largest / 253;
        const float k = kv_element(l, head.data(), KvHalf::kKey, 3, d);
        CHECK(std::fabs(k - x) <= bound);
        CHECK(kv_element(l, head.data(), KvHalf::kValue, 5, d) == k);
        CHECK(keys[d] == double{k});
        CHECK(values[d] == double{k});
      }
      const auto written =
          std::count_if(head.begin(), head.end(), [](std::byte b) { return b != std::byte{0xff}; });
      CHECK(written <= static_cast<int64_t>(2 * l.row_bytes()));
    }
  }
}

TEST_CASE("elements lie where the layout says") {
  const float row[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 127};
  const KvLayout rows{KvType::kInt8, 1, 1, 16, 16, KvOrder::kRows};
  auto head = head_of(rows);
  put_kv_row(rows, head.data(), KvHalf::kKey, 2, row);
  put_kv_row(rows, head.data(), KvHalf::kValue, 2, row);
  CHECK(head[2 * 16 + 5] == std::byte{5});
  CHECK(head[16 * 16 + 2 * 16 + 5] == std::byte{5});
  const auto* scales = reinterpret_cast<const uint16_t*>(head.data() + size_t{2} * 16 * 16);
  CHECK(scales[2] == float_to_half(1));
  CHECK(scales[16 + 2] == float_to_half(1));
  const KvLayout lanes{KvType::kInt8, 1, 1, 16, 16, KvOrder::kLanes};
  head = head_of(lanes);
  put_kv_row(lanes, head.data(), KvHalf::kKey, 2, row);
  put_kv_row(lanes, head.data(), KvHalf::kValue, 2, row);
  CHECK(head[5 * 16 + 2] == std::byte{5});
  CHECK(head[16 * 16 + 2 * 16 + 5] == std::byte{5});
}

TEST_CASE("a row without a finite scale reads as NaN, a row of zeros as zeros") {
  const KvLayout l{KvType::kFp8, 1, 1, 16, 16, KvOrder::kRows};
  auto head = head_of(l);
  std::vector<float> row(16, 1.0f);
  row[3] = std::nanf("");
  put_kv_row(l, head.data(), KvHalf::kKey, 0, row.data());
  CHECK(std::isnan(kv_element(l, head.data(), KvHalf::kKey, 0, 0)));
  CHECK(std::isnan(kv_element(l, head.data(), KvHalf::kKey, 0, 3)));
  std::fill(row.begin(), row.end(), 0.0f);
  put_kv_row(l, head.data(), KvHalf::kKey, 0, row.data());
  CHECK(kv_element(l, head.data(), KvHalf::kKey, 0, 3) == 0);
}

TEST_CASE("attention and append: both orders of every type agree, rows of no token are zeros") {
  std::mt19937 rng(3);
  constexpr int32_t kHeads = 2, kDim = 16, kTokens = 20;
  constexpr size_t kWidth = (kHeads + 2) * kDim;
  std::vector<float> rope(size_t{kTokens} * kDim);
  for (size_t i = 0; i < rope.size(); ++i) rope[i] = i % 2 ? 0.6f : 0.8f;
  const auto input = headrace::kernels::testing::random_floats((kTokens + 1) * kWidth, rng);
  for (const KvType type :
       {KvType::kF16, KvType::kF32, KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
    std::vector<float> first;
    for (const KvOrder order : {KvOrder::kLanes, KvOrder::kRows}) {
      PagedKv kv({type, 1, 1, kDim, 16, order}, 4, rng);
      const uint32_t* table = kv.table(kTokens);
      std::vector<StepRow> step;
      for (int32_t p = 0; p < kTokens; ++p) step.push_back({table, p});
      step.push_back({nullptr, -1});
      std::vector<float> qkv(input.begin(), input.end()), y(step.size() * kHeads * kDim, 7.0f);
      const auto rows = static_cast<int32_t>(step.size());
      reference(
          RopeAppendKv{qkv.data(), step.data(), rope.data(), rows, kHeads, kDim, 0, kv.pool()});
      CHECK(std::equal(qkv.end() - kWidth, qkv.end(), input.end() - kWidth));
      reference(Attention{qkv.data(), step.data(), rows, kHeads, 0, kv.pool(), {y.data()}});
      for (size_t i = y.size() - kHeads * kDim; i < y.size(); ++i) CHECK(y[i] == 0);
      for (const float x : y) CHECK(std::isfinite(x));
      if (first.empty()) first = y;
      CHECK(y == first);
      const Cost c =
          cost(Attention{qkv.data(), step.data(), rows, kHeads, 0, kv.pool(), {y.data()}});
      CHECK(c.kv_bytes == kTokens * 2 * kv.layout().row_bytes());
    }
  }
}
