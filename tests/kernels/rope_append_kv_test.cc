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
    const KvLayout layout{KvType::kF16, 2, c.kv_heads, c.head_dim, c.block_tokens};
    Array<float> rope(static_cast<size_t>(kContext * c.rotated));
    build_rope(kContext, c.rotated, 10000, 1, nullptr, rope.data());
    const int width = (c.heads + 2 * c.kv_heads) * c.head_dim;
    const auto input = random_floats(static_cast<size_t>(12 * width), rng);
    std::vector<std::byte> first_pool;
    std::vector<float> first_q;
    for (CpuPath path : paths()) {
      CAPTURE(name(path));
      std::mt19937 same_blocks(5);
      PagedKv kv(layout, 40, same_blocks);
      const auto rows = rows_of(kv);
      Array<float> qkv(input.size());
      std::copy(input.begin(), input.end(), qkv.begin());
      make_cpu_device(path, 2)->run(op_of(c, qkv, rows, rope, kv));
      CHECK(qkv.guarded());
      CHECK(kv.memory().guarded());
      int wrong = 0;
      for (size_t r = 0; r < rows.size(); ++r) {
        const auto value = [&](int head, int d) {
          const float* x =
              &input[r * static_cast<size_t>(width) + static_cast<size_t>(head * c.head_dim)];
          if (d >= c.rotated || head >= c.heads + c.kv_heads) return double{x[d]};
          const double angle = rows[r].position * std::pow(10000.0, -2.0 * (d / 2) / c.rotated);
          return d % 2 ? x[d - 1] * std::sin(angle) + x[d] * std::cos(angle)
                       : x[d] * std::cos(angle) - x[d + 1] * std::sin(angle);
        };
        for (int d = 0; d < c.head_dim; ++d) {
          for (int h = 0; h < c.heads; ++h) {
            const float got =
                qkv[r * static_cast<size_t>(width) + static_cast<size_t>(h * c.head_dim + d)];
            wrong += !(std::fabs(got - value(h, d)) < 1e-6);
          }
          for (int h = 0; h < c.kv_heads; ++h) {
            const double k = value(c.heads + h, d), v = value(c.heads + c.kv_heads + h, d);
            const float got_k = kv.get(rows[r].blocks, 1, h, rows[r].position, d, true);
            const float got_v = kv.get(rows[r].blocks, 1, h, rows[r].position, d, false);
            wrong += !(std::fabs(got_k - k) <= std::fabs(k) * 0x1p-11 + 1e-6);
            wrong += got_v !=
                     PagedKv::half(static_cast<uint16_t>(PagedKv::halves(static_cast<float>(v))));
          }
        }
      }
      CHECK(wrong == 0);
      // Only the rows' own slots were written: everything else is still poison.
      const auto& memory = kv.memory();
      const auto written = std::count_if(memory.begin(), memory.end(),
                                         [](std::byte b) { return b != std::byte{0xff}; });
      CHECK(written <= int64_t{12} * c.kv_heads * c.head_dim * 4);
      const std::vector<std::byte> pool(memory.begin(), memory.end());
      const std::vector<float> q(qkv.begin(), qkv.end());
      if (first_pool.empty()) {
        first_pool = pool;
        first_q = q;
      }
      CHECK(pool == first_pool);
      // k is not read after this operation, so only q must be equal.
      for (size_t r = 0; r < rows.size(); ++r) {
        REQUIRE(same_bits(&q[r * static_cast<size_t>(width)],
                          &first_q[r * static_cast<size_t>(width)],
                          static_cast<size_t>(c.heads * c.head_dim)));
      }
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
