#include <doctest/doctest.h>

#include "kernels/rope_table.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/paged.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

constexpr int kContext = 200;

struct Case {
  int heads, kv_heads, head_dim, rotated, block_tokens;
};

// Two sequences: a chunk of rows that crosses a block border, and one decode row.
std::vector<StepRow> rows_of(PagedKv& kv) {
  const uint32_t *a = kv.table(100), *b = kv.table(kContext);
  std::vector<StepRow> rows;
  for (int32_t p = 60; p < 71; ++p) rows.push_back({a, p});
  rows.push_back({b, kContext - 1});
  return rows;
}

RopeAppendKv op_of(const Case& c, const Array<float>& qkv, const std::vector<StepRow>& rows,
                   const Array<float>& rope, const PagedKv& kv) {
  return {qkv.data(), rows.data(), rope.data(), static_cast<int32_t>(rows.size()),
          c.heads,    c.rotated,   1,           kv.pool()};
}

int width_of(const Case& c) { return (c.heads + 2 * c.kv_heads) * c.head_dim; }

// Dim d of a head of the input as it should come out.
double turned(const Case& c, const float* head, int d, int32_t position) {
  if (d >= c.rotated) return head[d];
  const double angle = position * std::pow(10000.0, -2.0 * (d / 2) / c.rotated);
  return d % 2 ? head[d - 1] * std::sin(angle) + head[d] * std::cos(angle)
               : head[d] * std::cos(angle) - head[d + 1] * std::sin(angle);
}

// How many values of q, K and V are not what they should be.
int wrong_values(const Case& c, const Array<float>& input, const Array<float>& qkv,
                 const std::vector<StepRow>& rows, const PagedKv& kv) {
  int wrong = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const float* in = &input[r * static_cast<size_t>(width_of(c))];
    const float* out = &qkv[r * static_cast<size_t>(width_of(c))];
    const StepRow& row = rows[r];
    for (int d = 0; d < c.head_dim; ++d) {
      for (int h = 0; h < c.heads; ++h) {
        const double q = turned(c, in + h * c.head_dim, d, row.position);
        wrong += !(std::fabs(out[h * c.head_dim + d] - q) < 1e-6);
      }
      for (int h = 0; h < c.kv_heads; ++h) {
        const double k = turned(c, in + (c.heads + h) * c.head_dim, d, row.position);
        const float got = kv.get(row.blocks, 1, h, row.position, d, true);
        wrong += !(std::fabs(got - k) <= std::fabs(k) * 0x1p-11 + 1e-6);
        const float v = in[(c.heads + c.kv_heads + h) * c.head_dim + d];
        const auto stored = static_cast<uint16_t>(PagedKv::halves(v));
        wrong += kv.get(row.blocks, 1, h, row.position, d, false) != PagedKv::half(stored);
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("rope_append_kv: values, places and nothing else") {
  for (const Case c : {Case{9, 3, 64, 64, 32},
                       {4, 4, 40, 24, 16},
                       {6, 1, 8, 8, 64},
                       {2, 1, 5, 2, 16},
                       {8, 2, 128, 128, 32}}) {
    CAPTURE(c.head_dim);
    CAPTURE(c.rotated);
    std::mt19937 rng(1);
    Array<float> rope(static_cast<size_t>(kContext * c.rotated));
    build_rope(kContext, c.rotated, 10000, 1, nullptr, rope.data());
    const auto input = random_floats(static_cast<size_t>(12 * width_of(c)), rng);
    std::vector<std::byte> first_pool;
    std::vector<float> first_q;
    for (CpuPath path : paths()) {
      CAPTURE(name(path));
      std::mt19937 same_blocks(5);
      PagedKv kv({KvType::kF16, 2, c.kv_heads, c.head_dim, c.block_tokens}, 40, same_blocks);
      const auto rows = rows_of(kv);
      Array<float> qkv(input.size());
      std::copy(input.begin(), input.end(), qkv.begin());
      make_cpu_device(path, 2)->run(op_of(c, qkv, rows, rope, kv));
      CHECK(qkv.guarded());
      CHECK(kv.memory().guarded());
      CHECK(wrong_values(c, input, qkv, rows, kv) == 0);
      // Only the rows' own slots were written: everything else is still poison.
      const std::vector<std::byte> pool(kv.memory().begin(), kv.memory().end());
      const auto written =
          std::count_if(pool.begin(), pool.end(), [](std::byte b) { return b != std::byte{0xff}; });
      CHECK(written <= int64_t{12} * c.kv_heads * c.head_dim * 4);
      // k is not read after this operation, so only q must be equal.
      std::vector<float> q;
      for (size_t r = 0; r < rows.size(); ++r) {
        const float* row = &qkv[r * static_cast<size_t>(width_of(c))];
        q.insert(q.end(), row, row + c.heads * c.head_dim);
      }
      if (first_pool.empty()) {
        first_pool = pool;
        first_q = q;
      }
      CHECK(pool == first_pool);
      CHECK(same_bits(q.data(), first_q.data(), q.size()));
    }
  }
}

TEST_CASE("rope_append_kv: the reference writes f32 and agrees") {
  std::mt19937 rng(2);
  const Case c{4, 2, 32, 32, 16};
  Array<float> rope(static_cast<size_t>(kContext * c.rotated));
  build_rope(kContext, c.rotated, 10000, 1, nullptr, rope.data());
  const auto input = random_floats(12 * 8 * 32, rng);
  std::mt19937 blocks_a(5), blocks_b(5);
  PagedKv exact({KvType::kF32, 2, 2, 32, 16}, 40, blocks_a);
  PagedKv half({KvType::kF16, 2, 2, 32, 16}, 40, blocks_b);
  const auto rows_exact = rows_of(exact), rows_half = rows_of(half);
  Array<float> a(input.size()), b(input.size());
  std::copy(input.begin(), input.end(), a.begin());
  std::copy(input.begin(), input.end(), b.begin());
  make_reference_device()->run(op_of(c, a, rows_exact, rope, exact));
  make_cpu_device(best_cpu_path(), 1)->run(op_of(c, b, rows_half, rope, half));
  CHECK(exact.memory().guarded());
  std::vector<float> want, got;
  for (const auto& row : rows_exact) {
    for (int d = 0; d < 32; ++d) want.push_back(exact.get(row.blocks, 1, 1, row.position, d, true));
    for (int d = 0; d < 32; ++d)
      want.push_back(exact.get(row.blocks, 1, 0, row.position, d, false));
  }
  for (const auto& row : rows_half) {
    for (int d = 0; d < 32; ++d) got.push_back(half.get(row.blocks, 1, 1, row.position, d, true));
    for (int d = 0; d < 32; ++d) got.push_back(half.get(row.blocks, 1, 0, row.position, d, false));
  }
  CHECK(error_of(got, want).nmse < 1e-6);
  CHECK(close(a, b, 1e-12, 1e-5));
}

TEST_CASE(
    "rope_append_kv: what overflows f16 becomes infinite, tiny values keep their subnormals") {
  for (CpuPath path : paths()) {
    std::mt19937 rng(3);
    PagedKv kv({KvType::kF16, 1, 1, 8, 16}, 1, rng);
    const uint32_t* blocks = kv.table(1);
    const StepRow row{blocks, 0};
    Array<float> rope(8);
    build_rope(1, 8, 10000, 1, nullptr, rope.data());
    Array<float> qkv(24, 1.0f);
    qkv[8] = 1e6f;
    qkv[16] = -65520.0f;
    qkv[17] = 3e-6f;
    make_cpu_device(path, 1)->run(
        RopeAppendKv{qkv.data(), &row, rope.data(), 1, 1, 8, 0, kv.pool()});
    CHECK(kv.get(blocks, 0, 0, 0, 0, true) == HUGE_VALF);
    CHECK(kv.get(blocks, 0, 0, 0, 0, false) == -HUGE_VALF);
    CHECK(kv.get(blocks, 0, 0, 0, 1, false) ==
          PagedKv::half(static_cast<uint16_t>(PagedKv::halves(3e-6f))));
    CHECK(kv.get(blocks, 0, 0, 0, 1, false) > 0);
  }
}
