#include <doctest/doctest.h>

#include "tests/kernels/harness.h"
#include "tests/kernels/paged.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

struct Shape {
  int heads, kv_heads, head_dim, block_tokens;
};

constexpr int32_t kSlice = kAttentionSlice;

// A pool, some rows and their queries.
struct Setup {
  Setup(const Shape& shape, uint32_t blocks, unsigned seed)
      : s(shape),
        rng(seed),
        kv({KvType::kF16, 2, shape.kv_heads, shape.head_dim, shape.block_tokens}, blocks, rng) {}

  // Rows at [from, to) of a new sequence whose keys are all there already, and none beyond.
  void sequence(int32_t from, int32_t to) {
    const uint32_t* table = kv.table(to);
    kv.fill(table, to, rng);
    for (int32_t p = from; p < to; ++p) rows.push_back({table, p});
  }
  void make_queries(float scale = 1) {
    qkv = std::make_unique<Array<float>>(random_floats(rows.size() * in_width(), rng, scale));
    // Only q may be read.
    for (size_t r = 0; r < rows.size(); ++r) {
      std::fill_n(qkv->data() + r * in_width() + out_width(), in_width() - out_width(), kNan);
    }
  }
  size_t in_width() const { return static_cast<size_t>((s.heads + 2 * s.kv_heads) * s.head_dim); }
  size_t out_width() const { return static_cast<size_t>(s.heads * s.head_dim); }
  bool blocks_fit() const { return out_width() % 32 == 0; }

  Attention op(size_t first, size_t n, float* y, QuantBlock* q) const {
    return {qkv->data() + first * in_width(),
            rows.data() + first,
            static_cast<int32_t>(n),
            s.heads,
            1,
            kv.pool(),
            {y, q}};
  }

  Shape s;
  std::mt19937 rng;
  PagedKv kv;
  std::vector<StepRow> rows;
  std::unique_ptr<Array<float>> qkv;
};

struct Output {
  explicit Output(const Setup& s)
      : y(s.rows.size() * s.out_width()), q(s.blocks_fit() ? y.size() / 32 : 0) {}
  QuantBlock* blocks(size_t row, const Setup& s) const {
    return s.blocks_fit() ? q.data() + row * s.out_width() / 32 : nullptr;
  }
  Array<float> y;
  Array<QuantBlock> q;
};

// All rows in operations of `together` rows each.
Output attend(const Setup& s, Device& device, size_t together) {
  Output out(s);
  for (size_t r = 0; r < s.rows.size(); r += together) {
    const size_t n = std::min(together, s.rows.size() - r);
    device.run(s.op(r, n, out.y.data() + r * s.out_width(), out.blocks(r, s)));
  }
  CHECK(out.y.guarded());
  CHECK(out.q.guarded());
  return out;
}

void check_all_ways(const Setup& s, double nmse = 1e-11) {
  Array<float> truth(s.rows.size() * s.out_width());
  reference(s.op(0, s.rows.size(), truth.data(), nullptr));
  std::unique_ptr<Output> first;
  for (CpuPath path : paths()) {
    for (int threads : {1, 3}) {
      auto device = make_cpu_device(path, threads);
      for (size_t together : {s.rows.size(), size_t{1}, size_t{5}}) {
        CAPTURE(name(path));
        CAPTURE(threads);
        CAPTURE(together);
        const Output out = attend(s, *device, together);
        if (!first) {
          first = std::make_unique<Output>(out.y.size() ? attend(s, *device, together) : Output(s));
          const Error e = error_of({out.y.data(), out.y.size()}, {truth.data(), truth.size()});
          CAPTURE(e.nmse);
          CAPTURE(e.maximum);
          CHECK(e.nmse < nmse);
          CHECK(e.maximum < 1e-4);
          if (s.blocks_fit()) {
            CHECK(error_of(dequantized({out.q.data(), out.q.size()}), {truth.data(), truth.size()})
                      .nmse < 3e-4);
          }
        }
        CHECK(same_bits(out.y, first->y));
        CHECK(same_bits(out.q, first->q));
      }
    }
  }
}

}  // namespace

TEST_CASE("attention: positions around every border, decode rows and chunks mixed") {
  for (int tokens : {16, 32, 64}) {
    CAPTURE(tokens);
    Setup s({6, 2, 64, tokens}, 300, 1);
    for (int32_t p : {1, 2, tokens - 1, tokens, tokens + 1, kSlice - 1, kSlice, kSlice + 1}) {
      s.sequence(p - 1, p);
    }
    s.sequence(0, 13);                           // a whole prompt
    s.sequence(kSlice - 5, kSlice + 6);          // a chunk over a slice's border
    s.sequence(2 * kSlice + 3, 2 * kSlice + 4);  // a decode row with three slices
    s.make_queries();
    check_all_ways(s);
  }
}

TEST_CASE("attention: any group, any head size") {
  for (const Shape shape : {Shape{1, 1, 64, 32},
                            {9, 3, 64, 32},
                            {4, 1, 128, 32},
                            {5, 1, 80, 16},
                            {14, 2, 64, 32},
                            {16, 1, 32, 16},
                            {8, 1, 8, 16},
                            {6, 3, 20, 32},
                            {2, 2, 5, 16},
                            {3, 1, 256, 64},
                            {12, 1, 48, 32}}) {
    CAPTURE(shape.heads);
    CAPTURE(shape.kv_heads);
    CAPTURE(shape.head_dim);
    Setup s(shape, 120, 2);
    s.sequence(kSlice + 40, kSlice + 49);
    s.sequence(20, 21);
    s.make_queries();
    check_all_ways(s);
  }
}

TEST_CASE("attention: one long row is shared out and still the same") {
  Setup s({9, 3, 64, 32}, 140, 3);
  s.sequence(15 * kSlice + 100, 15 * kSlice + 101);
  s.make_queries();
  check_all_ways(s);
}

TEST_CASE("attention: large scores pick one key without overflow") {
  Setup s({2, 1, 64, 32}, 40, 4);
  s.sequence(kSlice + 30, kSlice + 33);
  s.make_queries(100);
  check_all_ways(s, 1e-7);
}

TEST_CASE("attention: equal keys give the mean of the values") {
  for (CpuPath path : paths()) {
    Setup s({1, 1, 16, 16}, 60, 5);
    s.sequence(599, 600);
    s.make_queries();
    for (int t = 0; t < 600; ++t) {
      for (int d = 0; d < 16; ++d) {
        s.kv.put(s.rows[0].blocks, 1, 0, t, d, true, 0.5f);
        s.kv.put(s.rows[0].blocks, 1, 0, t, d, false, static_cast<float>(t % 2 + d));
      }
    }
    auto device = make_cpu_device(path, 2);
    const Output out = attend(s, *device, 1);
    for (size_t d = 0; d < 16; ++d) {
      CHECK(out.y[d] == doctest::Approx(0.5 + static_cast<double>(d)).epsilon(1e-6));
    }
  }
}

TEST_CASE("attention: NaN in the query reaches its row and no other") {
  for (CpuPath path : paths()) {
    Setup s({2, 1, 32, 32}, 40, 6);
    s.sequence(300, 304);
    s.make_queries();
    (*s.qkv)[s.in_width() + 3] = kNan;  // row 1, head 0
    auto device = make_cpu_device(path, 2);
    const Output out = attend(s, *device, s.rows.size());
    for (size_t i = 0; i < out.y.size(); ++i) {
      const bool hit = i >= s.out_width() && i < s.out_width() + 32;
      REQUIRE(std::isnan(out.y[i]) == hit);
    }
    CHECK(std::isnan(out.q[s.out_width() / 32].scale));
  }
}

TEST_CASE("attention: cost counts the keys of a sequence once") {
  Setup s({6, 2, 64, 32}, 40, 7);
  s.sequence(100, 104);
  s.sequence(10, 11);
  s.make_queries();
  Output out(s);
  const Cost c = cost(s.op(0, 5, out.y.data(), nullptr));
  CHECK(c.kv_bytes == (104 + 11) * 2 * 2 * 64 * 2);
  CHECK(c.flops == (101 + 102 + 103 + 104 + 11) * 6 * 64 * 4);
  CHECK(c.activation_bytes == 2 * 5 * 6 * 64 * 4);
}
