#include <doctest/doctest.h>

#include <cmath>

#include "tests/kernels/weights.h"

namespace headrace::kernels {
namespace {

using namespace testing;

constexpr SourceType kAll[] = {SourceType::kF32,  SourceType::kF16,  SourceType::kBf16,
                               SourceType::kQ8_0, SourceType::kQ4_0, SourceType::kQ4_1};
constexpr SourceType kQuantized[] = {SourceType::kQ8_0, SourceType::kQ4_0, SourceType::kQ4_1};

// A product with everything that belongs to it.
struct Case {
  Weights w;
  int rows;
  int64_t stride;
  Array<float> x;
  Array<QuantBlock> q;
  Array<float> before;  // what y holds when it is added to

  Case(SourceType type, int n, int k, int m, std::mt19937& rng, int spare = 0, float outlier = 1)
      : Case(Weights(type, n, k, rng), m, rng, spare, outlier) {}
  Case(Weights weights, int m, std::mt19937& rng, int spare = 0, float outlier = 1)
      : w(std::move(weights)),
        rows(m),
        stride(w.matrix.rows + spare),
        x(random_floats(static_cast<size_t>(m) * static_cast<size_t>(w.matrix.cols), rng)),
        q(static_cast<size_t>(m) * static_cast<size_t>(w.matrix.cols / 32)),
        before(random_floats(y_size(), rng)) {
    for (size_t i = 3; i < x.size(); i += 77) x[i] *= outlier;
    if (quantized(w.matrix.type)) reference(QuantizeRows{x.data(), m, w.matrix.cols, q.data()});
  }
  size_t y_size() const { return static_cast<size_t>(rows) * static_cast<size_t>(stride); }
  int n() const { return w.matrix.rows; }
  int k() const { return w.matrix.cols; }

  MatMul op(float* y, bool add) const {
    Rows in;
    if (quantized(w.matrix.type))
      in.q = q.data();
    else
      in.f32 = x.data();
    return {w.matrix, in, rows, y, stride, add};
  }
  // All rows at once.
  Array<float> run(Device& device, bool add = false) const {
    Array<float> y(y_size());
    if (add) std::copy(before.begin(), before.end(), y.begin());
    device.run(op(y.data(), add));
    CHECK(y.guarded());
    return y;
  }
  // Row by row.
  Array<float> run_alone(Device& device, bool add = false) const {
    Array<float> y(y_size());
    if (add) std::copy(before.begin(), before.end(), y.begin());
    for (int r = 0; r < rows; r++) {
      MatMul one = op(y.data() + r * stride, add);
      one.rows = 1;
      if (one.x.q != nullptr)
        one.x.q += r * w.matrix.units();
      else
        one.x.f32 += int64_t{r} * k();
      device.run(one);
    }
    return y;
  }
  // Only [row, n) of every row: what lies between rows is not the operation's.
  std::vector<float> dense(const Array<float>& y) const {
    std::vector<float> out;
    for (int r = 0; r < rows; r++)
      out.insert(out.end(), y.data() + r * stride, y.data() + r * stride + n());
    return out;
  }
  bool gaps_are(const Array<float>& y, const float* values) const {
    for (int r = 0; r < rows; r++) {
      for (int64_t i = r * stride + n(); i < (r + 1) * stride; i++) {
        const auto at = static_cast<size_t>(i);
        if (values == nullptr ? !std::isnan(y[at]) : y[at] != values[i]) return false;
      }
    }
    return true;
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

std::vector<std::unique_ptr<Device>> cpu_devices() {
  std::vector<std::unique_ptr<Device>> all;
  for (CpuPath path : paths()) {
    all.push_back(make_cpu_device(path, 1));
    all.push_back(make_cpu_device(path, 3));
  }
  return all;
}

// The order of operations that every body promises, written out for one result.
float defined(const Case& c, int row, int n) {
  const Matrix& m = c.w.matrix;
  const std::byte* unit = m.data + m.tile_bytes() * static_cast<size_t>(n / 32);
  float acc = 0;
  for (int u = 0; u < m.units(); u++, unit += unit_bytes(m.type)) {
    if (!quantized(m.type)) {
      float chain = 0;
      for (int k = 32 * u; k < std::min(32 * u + 32, m.cols); k++) {
        const auto at = static_cast<size_t>(row) * static_cast<size_t>(m.cols);
        chain = std::fma(weight_at(m, n, k), c.x[at + static_cast<size_t>(k)], chain);
      }
      acc += chain;
      continue;
    }
    const QuantBlock& b = c.q[static_cast<size_t>(row * m.units() + u)];
    const auto half = [&](int at) {
      uint16_t h;
      std::memcpy(&h, unit + at, 2);
      return half_to_float(h);
    };
    const float scale = half(2 * (n % 32));
    const float minimum = m.type == WeightType::kW4Min ? half(64 + 2 * (n % 32)) : 0;
    int32_t sum = 0;
    for (int i = 0; i < 32; i++) {
      // The stored integer, back from the weight; with scale 0 it does not matter.
      const float w = weight_at(m, n, 32 * u + i) - minimum;
      sum += (scale == 0 ? 0 : static_cast<int32_t>(std::lround(w / scale))) * b.q[i];
    }
    acc = std::fma(static_cast<float>(sum), scale * b.scale, acc);
    if (m.type == WeightType::kW4Min)
      acc = std::fma(minimum, b.scale * static_cast<float>(b.sum), acc);
  }
  return acc;
}

TEST_CASE("every type is close to the reference, over odd shapes") {
  std::mt19937 rng(1);
  for (SourceType type : kAll) {
    for (int n : {1, 15, 16, 17, 31, 32, 33, 65, 130}) {
      for (int k : {32, 64, 160, 576}) {
        const Case c(type, n, k, 3, rng, n % 5);
        const auto truth = c.run(*make_reference_device());
        for (auto& device : cpu_devices()) {
          CAPTURE(device->name());
          CAPTURE(name(c.w.matrix.type));
          CAPTURE(n);
          CAPTURE(k);
          const auto y = c.run(*device);
          CHECK(close(c.dense(y), c.dense(truth), 1e-11, 1e-4));
          CHECK(c.gaps_are(y, nullptr));
        }
      }
    }
  }
}

TEST_CASE("long sums and outliers stay close to the reference") {
  std::mt19937 rng(2);
  for (SourceType type : kAll) {
    for (float outlier : {1.0f, 1000.0f}) {
      const Case c(type, 40, 4096, 2, rng, 0, outlier);
      const auto truth = c.run(*make_reference_device());
      for (auto& device : cpu_devices()) {
        CAPTURE(device->name());
        CHECK(close(c.run(*device), truth, 1e-11, 1e-4));
      }
    }
  }
}

void every_path_gives(const Case& c, const std::vector<float>& truth) {
  for (auto& device : cpu_devices()) {
    CAPTURE(device->name());
    CAPTURE(name(c.w.matrix.type));
    CAPTURE(c.rows);
    const auto y = c.run(*device);
    CHECK(same(c.dense(y), truth));
    CHECK(c.gaps_are(y, nullptr));
  }
}

// Long enough that bodies which keep part of K in a cache take several turns, not all of a length.
TEST_CASE("rows that are longer than a turn give the defined bits") {
  std::mt19937 rng(11);
  for (SourceType type : kQuantized) {
    for (int m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16}) {
      const Case c(type, 72, 130 * 32, m, rng, 1);
      std::vector<float> truth(static_cast<size_t>(m * c.n()));
      for (int r = 0; r < m; r++)
        for (int n = 0; n < c.n(); n++)
          truth[static_cast<size_t>(r * c.n() + n)] = defined(c, r, n);
      every_path_gives(c, truth);
    }
  }
}

TEST_CASE("quantized products with f32 activations, on the reference device") {
  std::mt19937 rng(3);
  for (SourceType type : kQuantized) {
    const Case c(type, 40, 96, 2, rng);
    MatMul op = c.op(nullptr, false);
    op.x = {c.x.data(), nullptr};
    Array<float> y(c.y_size());
    op.y = y.data();
    make_reference_device()->run(op);
    for (int r = 0; r < 2; r++) {
      for (int n = 0; n < 40; n++) {
        double sum = 0;
        for (int k = 0; k < 96; k++)
          sum += double{weight_at(c.w.matrix, n, k)} * double{c.x[static_cast<size_t>(96 * r + k)]};
        CHECK(double{y[static_cast<size_t>(40 * r + n)]} == doctest::Approx(sum).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("all paths give the defined bits, and any number of rows those of one") {
  std::mt19937 rng(4);
  const std::unique_ptr<Device> first = make_cpu_device(CpuPath::kPortable, 1);
  for (SourceType type : kAll) {
    for (int m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33, 64}) {
      const Case c(type, m % 2 == 0 ? 200 : 77, m == 1 ? 1536 : 96, m, rng, m % 3, 30);
      const auto truth = c.dense(c.run_alone(*first));
      if (m <= 2) {
        for (int r = 0; r < m; r++) {
          for (int n = 0; n < c.n(); n++)
            CHECK(truth[static_cast<size_t>(r * c.n() + n)] == defined(c, r, n));
        }
      }
      every_path_gives(c, truth);
    }
  }
}

TEST_CASE("K that is no multiple of 32, for float weights") {
  std::mt19937 rng(5);
  for (SourceType type : {SourceType::kF32, SourceType::kF16, SourceType::kBf16}) {
    for (int k : {1, 7, 31, 33, 65}) {
      for (int m : {1, 5, 9}) {
        const Case c(type, 50, k, m, rng);
        const auto truth = c.run(*make_reference_device());
        for (auto& device : cpu_devices()) {
          const auto y = c.run(*device);
          CHECK(close(y, truth, 1e-12, 1e-5));
          CHECK(y[10] == defined(c, 0, 10));
        }
      }
    }
  }
}

TEST_CASE("add keeps what was there, and touches nothing between rows") {
  std::mt19937 rng(6);
  for (SourceType type : kAll) {
    for (int m : {1, 4, 13}) {
      const Case c(type, 45, 64, m, rng, 7);
      const auto plain = c.dense(c.run(*make_cpu_device(CpuPath::kPortable, 1)));
      const auto before = c.dense(c.before);
      std::vector<float> truth;
      for (size_t i = 0; i < plain.size(); i++) truth.push_back(before[i] + plain[i]);
      for (auto& device : cpu_devices()) {
        const auto y = c.run(*device, true);
        CHECK(same(c.dense(y), truth));
        CHECK(c.gaps_are(y, c.before.data()));
        CHECK(same(c.dense(c.run_alone(*device, true)), truth));
      }
      const auto reference = c.run(*make_reference_device(), true);
      CHECK(close(truth, c.dense(reference), 1e-11, 1e-4));
    }
  }
}

// Everything at its extreme: no product of bytes may saturate, and a scale of zero gives zero.
TEST_CASE("extreme quants are exact") {
  std::mt19937 rng(7);
  for (SourceType type : kQuantized) {
    for (int fill : {0x00, 0xff, 0x80, 0x7f}) {
      auto source = random_source(type, 33, 64, rng);
      const size_t block = source_row_bytes(type, 32);
      const size_t head = type == SourceType::kQ4_1 ? 4 : 2;
      for (size_t i = 0; i < source.size(); i++) {
        if (i % block >= head) source[i] = static_cast<std::byte>(fill);
      }
      std::memset(source.data(), 0, 2);  // the scale of row 0, block 0
      for (int sign : {1, -1}) {
        Case c(Weights(type, 33, 64, source), 5, rng);
        for (auto& b : c.q) {
          for (auto& v : b.q) v = static_cast<int8_t>(127 * sign);
          b.sum = 32 * 127 * sign;
        }
        for (auto& device : cpu_devices()) {
          CAPTURE(device->name());
          const auto y = c.run(*device);
          bool equal = true;
          for (int r = 0; r < 5; r++) {
            for (int n = 0; n < 33; n++)
              equal &= y[static_cast<size_t>(33 * r + n)] == defined(c, r, n);
          }
          CHECK(equal);
        }
      }
    }
  }
}

TEST_CASE("half scales of every kind, subnormal and zero") {
  std::mt19937 rng(8);
  for (SourceType type : kQuantized) {
    auto source = random_source(type, 64, 32, rng);
    const size_t block = source_row_bytes(type, 32);
    for (size_t r = 0; r < 64; r++) {
      const auto h = static_cast<uint16_t>(r * 0x3ff / 63 | (r % 2 << 15));  // subnormals
      std::memcpy(source.data() + r * block, &h, 2);
    }
    const Case c(Weights(type, 64, 32, source), 1, rng);
    for (auto& device : cpu_devices()) {
      const auto y = c.run(*device);
      for (int n = 0; n < 64; n++) CHECK(y[static_cast<size_t>(n)] == defined(c, 0, n));
    }
  }
}

TEST_CASE("what is not finite comes out as NaN in its own row only") {
  std::mt19937 rng(9);
  for (SourceType type : kQuantized) {
    Case c(type, 70, 64, 3, rng);
    c.x[64 + 40] = std::numeric_limits<float>::infinity();
    reference(QuantizeRows{c.x.data(), 3, 64, c.q.data()});
    for (auto& device : cpu_devices()) {
      const auto y = c.dense(c.run(*device));
      for (size_t i = 0; i < y.size(); i++) CHECK(std::isnan(y[i]) == (i / 70 == 1));
    }
  }
}

TEST_CASE("cost") {
  std::mt19937 rng(10);
  const Case c(SourceType::kQ4_1, 64, 96, 5, rng);
  const Cost cost = kernels::cost(c.op(nullptr, true));
  CHECK(cost.weight_bytes == 2 * 3 * 640);
  CHECK(cost.activation_bytes == 5 * (3 * 40 + 64 * 4 * 2));
  CHECK(cost.flops == 2 * 5 * 64 * 96);
  CHECK(cost.kv_bytes == 0);
}

}  // namespace
}  // namespace headrace::kernels
