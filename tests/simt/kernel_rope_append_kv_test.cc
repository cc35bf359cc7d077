#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/half.h"
#include "kernels/kv_element.h"
#include "kernels/rope_table.h"
#include "tests/simt/configurations.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {
namespace {

using kernels::KvType;

constexpr KvType kTypes[] = {KvType::kF16, KvType::kF32, KvType::kBf16, KvType::kFp8,
                             KvType::kInt8};
constexpr int32_t kContext = 100;
constexpr int32_t kBlocks = 24;

struct Shape {
  KvType type = KvType::kF16;
  int32_t heads = 2, kv_heads = 1, head_dim = 64, rotated = 64, block_tokens = 16;
};

// Two sequences, a chunk over a border of pages and a decode row, and rows of no token between.
struct Case {
  explicit Case(const Shape& s, float scale = 1)
      : shape(s),
        layout{s.type, 2, s.kv_heads, s.head_dim, s.block_tokens, kernels::KvOrder::kRows},
        pool(layout.block_bytes() * kBlocks, std::byte{0xff}),
        rope(static_cast<size_t>(kContext * s.rotated)) {
    for (uint32_t i = 0; i < 2 * kTable; i++) tables.push_back(i * 7 % kBlocks);
    kernels::build_rope(kContext, s.rotated, 10000, 1, nullptr, rope.data());
    for (int32_t p = 30; p < 35; p++) step(0, p);
    step(0, -1);
    step(kTable, kContext - 1);
    step(0, -1);
    std::mt19937 random(static_cast<uint32_t>(s.head_dim));
    std::normal_distribution<float> normal(0, scale);
    qkv.resize(places.size() * static_cast<size_t>(s.heads + 2 * s.kv_heads) *
               static_cast<size_t>(s.head_dim));
    for (float& x : qkv) x = normal(random);
  }
  void step(size_t table, int32_t position) { places.push_back({table, position}); }
  std::vector<kernels::StepRow> rows(const uint32_t* at) const {
    std::vector<kernels::StepRow> rows;
    for (const auto& [table, position] : places) {
      rows.push_back({position < 0 ? nullptr : at + table, position});
    }
    return rows;
  }
  kernels::RopeAppendKv op(float* values, const kernels::StepRow* step, const float* table,
                           std::byte* base) const {
    return {values,      step,          table, static_cast<int32_t>(places.size()),
            shape.heads, shape.rotated, 1,     {layout, base}};
  }

  static constexpr size_t kTable = 7;  // blocks of a sequence
  Shape shape;
  kernels::KvLayout layout;
  std::vector<std::byte> pool;
  std::vector<float> rope;
  std::vector<uint32_t> tables;
  std::vector<std::pair<size_t, int32_t>> places;
  std::vector<float> qkv;
};

struct Result {
  std::vector<float> qkv;
  std::vector<std::byte> pool;
};

Result on_device(const Case& c) {
  const DeviceBuffer<uint32_t> tables(c.tables);
  const DeviceBuffer<kernels::StepRow> step(c.rows(tables.get()));
  const DeviceBuffer<float> qkv(c.qkv);
  const DeviceBuffer<float> rope(c.rope);
  const DeviceBuffer<std::byte> pool(c.pool);
  const TestStream stream;
  REQUIRE(cuda::enqueue(c.op(qkv.get(), step.get(), rope.get(), pool.get()),
                        cuda::Context{.stream = stream.get()}) == cudaSuccess);
  stream.wait();
  return {qkv.values(), pool.values()};
}

Result by_reference(const Case& c) {
  Result r{c.qkv, c.pool};
  const auto step = c.rows(c.tables.data());
  kernels::reference(c.op(r.qkv.data(), step.data(), c.rope.data(), r.pool.data()));
  return r;
}

// The largest step between neighbouring stored values, for a row whose largest magnitude is
// `largest`.
double step_of(KvType type, double x, double largest) {
  switch (type) {
    case KvType::kF16:
      return std::max(x * 0x1p-10, 0x1p-24);
    case KvType::kF32:
      return 1e-6;
    case KvType::kBf16:
      return x * 0x1p-7;
    case KvType::kFp8:
      return std::max(x * 0x1p-3, largest * 0x1p-16) * 1.1;
    case KvType::kInt8:
      return largest / 127 * 1.1;
  }
  return 0;
}

void check_case(const Case& c) {
  const Result got = on_device(c);
  const Result expected = by_reference(c);
  const Shape& s = c.shape;
  const auto of_row = static_cast<size_t>((s.heads + 2 * s.kv_heads) * s.head_dim);
  for (size_t i = 0; i < c.qkv.size(); i++) {
    const bool query = i % of_row < static_cast<size_t>(s.heads * s.head_dim);
    const float wanted = query ? expected.qkv[i] : c.qkv[i];
    REQUIRE(std::abs(got.qkv[i] - wanted) <= (query ? 1e-6f * (1 + std::abs(wanted)) : 0.0f));
  }
  // Values within a step of their type, most of them the same; nothing else is written.
  size_t differ = 0;
  for (size_t i = 0; i < got.pool.size(); i++) differ += got.pool[i] != expected.pool[i];
  CHECK(differ <= (s.type == KvType::kF32 ? got.pool.size() : c.qkv.size() / 50));
  std::vector<std::byte> untouched = got.pool, left = c.pool;
  for (const auto& [table, position] : c.places) {
    if (position < 0) continue;
    const uint32_t block = c.tables[table + static_cast<size_t>(position / s.block_tokens)];
    const kernels::KvPool ours{c.layout, const_cast<std::byte*>(got.pool.data())};
    const kernels::KvPool theirs{c.layout, const_cast<std::byte*>(expected.pool.data())};
    const kernels::KvPool erased{c.layout, untouched.data()};
    const kernels::KvPool erased_before{c.layout, left.data()};
    const std::vector<float> zeros(static_cast<size_t>(s.head_dim), 0.0f);
    for (int32_t h = 0; h < s.kv_heads; h++) {
      for (const auto half : {kernels::KvHalf::kKey, kernels::KvHalf::kValue}) {
        const int32_t slot = position % s.block_tokens;
        double largest = 0;
        for (int32_t d = 0; d < s.head_dim; d++) {
          largest = std::max(largest, std::abs(double{kernels::kv_element(
                                          c.layout, theirs.head(block, 1, h), half, slot, d)}));
        }
        for (int32_t d = 0; d < s.head_dim; d++) {
          const double a = kernels::kv_element(c.layout, ours.head(block, 1, h), half, slot, d);
          const double b = kernels::kv_element(c.layout, theirs.head(block, 1, h), half, slot, d);
          REQUIRE(std::abs(a - b) <= step_of(s.type, std::abs(b), largest));
        }
        kernels::put_kv_row(c.layout, erased.head(block, 1, h), half, slot, zeros.data());
        kernels::put_kv_row(c.layout, erased_before.head(block, 1, h), half, slot, zeros.data());
      }
    }
  }
  CHECK(untouched == left);
}

TEST_CASE("rope append: every type, values and places, nothing else") {
  for (const KvType type : kTypes) {
    CAPTURE(static_cast<int>(type));
    for (const Shape& s : {Shape{type, 9, 3, 64, 64, 32},
                           {type, 4, 4, 40, 24, 16},
                           {type, 2, 1, 8, 8, 64},
                           {type, 2, 1, 6, 2, 16},
                           {type, 4, 2, 128, 128, 16},
                           {type, 1, 1, 256, 64, 16}}) {
      CAPTURE(s.head_dim);
      check_case(Case(s));
    }
  }
}

TEST_CASE("rope append: in every order of the emulator") {
  const Case f16({KvType::kF16, 2, 1, 64, 64, 16});
  const Case fp8({KvType::kFp8, 2, 1, 64, 64, 16});
  each_configuration([&] {
    check_case(f16);
    check_case(fp8);
  });
}

TEST_CASE("rope append: values are stored to the bit") {
  // v does not turn: nothing rounds before it is stored.
  for (const KvType type : kTypes) {
    CAPTURE(static_cast<int>(type));
    for (const float scale : {1.0f, 1e-6f, 300.0f}) {
      const Case c({type, 1, 1, 64, 64, 16}, scale);
      const Result got = on_device(c), expected = by_reference(c);
      const size_t half = c.layout.row_bytes() * 16;
      const size_t elements = kernels::element_bytes(type) * 64 * 16;
      const size_t layer = c.layout.layer_bytes();
      for (size_t block = 0; block < kBlocks; block++) {
        const size_t at = block * 2 * layer + layer;
        CHECK(std::memcmp(&got.pool[at + elements], &expected.pool[at + elements], elements) == 0);
        if (half == elements) continue;
        const size_t scales = at + 2 * elements + 32;
        CHECK(std::memcmp(&got.pool[scales], &expected.pool[scales], 32) == 0);
      }
    }
  }
}

TEST_CASE("rope append: rows of zeros, of NaN and of what is too large") {
  for (const KvType type : {KvType::kFp8, KvType::kInt8}) {
    Case c({type, 1, 1, 16, 16, 16});
    const auto v_of = [&](size_t row) { return c.qkv.begin() + static_cast<int>(row * 48 + 32); };
    std::fill_n(v_of(0), 16, 0.0f);
    *v_of(1) = NAN;
    *v_of(2) = INFINITY;
    *v_of(3) = 3e38f;
    const Result got = on_device(c), expected = by_reference(c);
    const kernels::KvPool ours{c.layout, const_cast<std::byte*>(got.pool.data())};
    for (size_t row = 0; row < 5; row++) {
      const int32_t position = 30 + static_cast<int32_t>(row);
      const std::byte* head = ours.head(c.tables[static_cast<size_t>(position / 16)], 1, 0);
      const float v =
          kernels::kv_element(c.layout, head, kernels::KvHalf::kValue, position % 16, 2);
      CHECK(std::isnan(v) == (row >= 1 && row <= 3));
      if (row == 0) CHECK(v == 0);
    }
    CHECK(got.pool.size() == expected.pool.size());
  }
}

TEST_CASE("rope append: a wrong order or place is seen") {
  Case c({KvType::kF16, 2, 1, 64, 64, 16});
  const Result got = on_device(c);
  c.layout.order = kernels::KvOrder::kLanes;
  CHECK(got.pool != by_reference(c).pool);
}

TEST_CASE("rope append: what it does not do is refused, nothing is done at once") {
  const Case c({KvType::kF16, 1, 1, 16, 16, 16});
  const TestStream stream;
  const DeviceBuffer<float> memory(std::vector<float>(64, 1.0f));
  const auto enqueue = [&](const auto& change) {
    kernels::RopeAppendKv op =
        c.op(memory.get(), nullptr, memory.get(), reinterpret_cast<std::byte*>(memory.get()));
    change(op);
    return cuda::enqueue(op, cuda::Context{.stream = stream.get()});
  };
  using Op = kernels::RopeAppendKv;
  constexpr auto kBad = cudaErrorInvalidValue;
  CHECK(enqueue([](Op& op) { op.rows = 0; }) == cudaSuccess);
  CHECK(enqueue([](Op& op) { op.kv.layout.order = kernels::KvOrder::kLanes; }) == kBad);
  CHECK(enqueue([](Op& op) { op.kv.layout.head_dim = 258; }) == kBad);
  CHECK(enqueue([](Op& op) { op.kv.layout.head_dim = 15; }) == kBad);
  CHECK(enqueue([](Op& op) { op.rotated = 18; }) == kBad);
  CHECK(enqueue([](Op& op) { op.rotated = 3; }) == kBad);
  CHECK(enqueue([](Op& op) { op.qkv += 1; }) == kBad);
  stream.wait();
  CHECK(memory.values() == std::vector<float>(64, 1.0f));
}

}  // namespace
}  // namespace headrace::simt
