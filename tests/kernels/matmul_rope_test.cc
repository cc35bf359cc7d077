#include <doctest/doctest.h>

#include "kernels/rope_table.h"
#include "tests/kernels/paged.h"
#include "tests/kernels/weights.h"

namespace headrace::kernels {
namespace {

using namespace testing;

constexpr int kContext = 300;
constexpr int kWidth = 96;  // K

struct Case {
  SourceType type;
  int heads, kv_heads, head_dim, rotated, block_tokens;
  int columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

struct Outcome {
  std::vector<float> q;
  std::vector<std::byte> pool;
  bool guarded = false;
  bool operator==(const Outcome&) const = default;
};

// One product for `count` rows of two sequences, with poison where nothing was written.
class Run {
 public:
  Run(const Case& c, int count, std::mt19937& rng)
      : c_(c),
        count_(count),
        weights_(c.type, c.columns(), kWidth, rng),
        x_(random_floats(static_cast<size_t>(count * kWidth), rng)),
        blocks_(static_cast<size_t>(count * kWidth / kGroup)),
        rope_(static_cast<size_t>(kContext * c.rotated)) {
    reference(QuantizeRows{x_.data(), count, kWidth, blocks_.data()});
    build_rope(kContext, c.rotated, 10000, 1, nullptr, rope_.data());
  }

  template <class F>
  Outcome by(const F& run) const {
    std::mt19937 same_blocks(5);
    PagedKv kv({KvType::kF16, 2, c_.kv_heads, c_.head_dim, c_.block_tokens}, 60, same_blocks);
    const uint32_t *a = kv.table(kContext), *b = kv.table(kContext);
    std::vector<StepRow> rows;
    for (int r = 0; r + 1 < count_; r++) rows.push_back({a, 60 + r});
    rows.push_back({b, kContext - 1});
    Array<float> qkv(static_cast<size_t>(count_ * c_.columns()));
    Rows x;
    if (quantized(weights_.matrix.type))
      x.q = blocks_.data();
    else
      x.f32 = x_.data();
    run(MatMulRope{
        weights_.matrix,
        x,
        {qkv.data(), rows.data(), rope_.data(), count_, c_.heads, c_.rotated, 1, kv.pool()}});
    Outcome out{
        {}, {kv.memory().begin(), kv.memory().end()}, qkv.guarded() && kv.memory().guarded()};
    for (int r = 0; r < count_; r++) {
      const float* row = &qkv[static_cast<size_t>(r * c_.columns())];
      out.q.insert(out.q.end(), row, row + c_.heads * c_.head_dim);
    }
    return out;
  }

 private:
  const Case& c_;
  const int count_;
  const Weights weights_;
  const Array<float> x_;
  const Array<QuantBlock> blocks_;
  Array<float> rope_;
};

TEST_CASE("matmul_rope: the bits of a product and then rope_append_kv, on every path") {
  std::mt19937 rng(1);
  for (const Case c : {Case{SourceType::kQ4_0, 9, 3, 64, 64, 32},
                       {SourceType::kQ4_1, 4, 4, 40, 24, 16},
                       {SourceType::kQ8_0, 6, 1, 8, 8, 64},
                       {SourceType::kF16, 3, 1, 10, 6, 16},
                       {SourceType::kQ4_0, 8, 2, 128, 128, 32}}) {
    for (const int count : {1, 2, 8, 17, 40}) {
      CAPTURE(c.head_dim);
      CAPTURE(count);
      const Run run(c, count, rng);
      const auto portable = make_cpu_device(CpuPath::kPortable, 1);
      const Outcome apart = run.by([&](const MatMulRope& op) {
        portable->run(product_of(op));
        portable->run(op.rope);
      });
      CHECK(apart.guarded);
      for (const CpuPath path : paths()) {
        for (const int threads : {1, 3}) {
          CAPTURE(name(path));
          const auto device = make_cpu_device(path, threads);
          CHECK(run.by([&](const MatMulRope& op) { device->run(op); }) == apart);
        }
      }
    }
  }
}

TEST_CASE("matmul_rope: a device that has no such kernel runs both; close to the reference") {
  std::mt19937 rng(2);
  const Case c{SourceType::kF16, 4, 2, 32, 32, 16};
  const Run run(c, 5, rng);
  const auto plain = make_reference_device();
  const Outcome exact = run.by([&](const MatMulRope& op) { reference(op); });
  CHECK(run.by([&](const MatMulRope& op) { plain->run(op); }) == exact);
  std::vector<std::string> ran;
  for (const OpAccount& account : plain->take_accounts()) ran.emplace_back(account.op);
  CHECK(ran == std::vector<std::string>{"matmul", "rope_append_kv"});
  const auto device = make_cpu_device(best_cpu_path(), 2);
  const Outcome one = run.by([&](const MatMulRope& op) { device->run(op); });
  CHECK(error_of(one.q, exact.q).nmse < 1e-9);
}

TEST_CASE("cost: k and v go to the pool alone") {
  std::mt19937 rng(3);
  const Weights w(SourceType::kQ8_0, 128, 64, rng);
  const QuantBlock any{};
  const KvLayout layout{KvType::kF16, 2, 1, 32, 16};
  const MatMulRope op{
      w.matrix, {.q = &any}, {nullptr, nullptr, nullptr, 3, 2, 16, 1, {layout, nullptr}}};
  const Cost c = cost(op);
  CHECK(c.weight_bytes == 128 / 32 * 2 * 17 * 64);
  CHECK(c.kv_bytes == 3 * 2 * 32 * 2);
  CHECK(c.activation_bytes == 3 * (2 * 40 + 2 * 32 * 4 + 16 * 4));
  CHECK(c.flops == 3 * (2 * 128 * 64 + 3 * 3 * 16));
}

}  // namespace
}  // namespace headrace::kernels
