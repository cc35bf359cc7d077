#include <algorithm>
#include <string>

#include "kernels/activation.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_spread.h"
#include "tests/gpu/bench.h"

// Products of a model's shapes: few rows, where weights' bytes count, to many, where products do.

namespace headrace::gpu {
namespace {

using kernels::Buffer;
using kernels::Matrix;
using kernels::WeightType;

constexpr int kCopiesMax = 64;
constexpr int kLaunchesMin = 4;

struct Shape {
  const char* what;
  int32_t n;
  int32_t k;
  WeightType type;
  bool paired;
  std::vector<int32_t> rows;
};

// Llama 3.1 8B's; of the types beside W4 one matrix, since the others differ by their size alone.
std::vector<Shape> shapes(bool tiny) {
  if (tiny) {
    return {{"qkv", 48, 64, WeightType::kW4, false, {1, 9}},
            {"gate_up", 64, 64, WeightType::kW4, true, {1}},
            {"down", 32, 128, WeightType::kW8, false, {1, 40}}};
  }
  const std::vector<int32_t> all{1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096};
  const std::vector<int32_t> some{1, 8, 32, 128, 1024};
  return {{"qkv", 6144, 4096, WeightType::kW4, false, all},
          {"out", 4096, 4096, WeightType::kW4, false, all},
          {"gate_up", 28672, 4096, WeightType::kW4, true, all},
          {"down", 4096, 14336, WeightType::kW4, false, all},
          {"gate_up", 28672, 4096, WeightType::kW8, true, some},
          {"gate_up", 28672, 4096, WeightType::kBf16, true, some},
          {"head", 128256, 4096, WeightType::kW8, false, {1, 8, 32, 128}}};
}

void measure_product(const Bench& bench, const Shape& s) {
  Matrix w{s.type, s.n, s.k, nullptr, kernels::Tiling::kFragments, s.paired};
  const size_t bytes = w.bytes();
  const int copies = bench.scale().tiny ? 2
                                        : static_cast<int>(std::clamp<uint64_t>(
                                              bench.scale().ring_bytes / bytes + 1, 1, kCopiesMax));
  const Buffer weights = bench.numbers(bytes * static_cast<size_t>(copies));
  const auto most = static_cast<size_t>(*std::max_element(s.rows.begin(), s.rows.end()));
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(s.k));
  const Buffer x = bench.numbers(most * pitch * sizeof(uint16_t));
  const Buffer sums = bench.numbers(most * pitch / 32 * sizeof(float));
  const auto out = static_cast<size_t>(kernels::bf16_pitch(s.n));
  const Buffer y = bench.memory(most * out * sizeof(float));
  const Buffer y_sums = bench.memory(most * out / 32 * sizeof(float));
  const Buffer workspace = bench.memory(cuda::kSpreadBytes);
  const Buffer counters = bench.memory(cuda::kSpreadCounters * sizeof(uint32_t));
  cuda::Context context = bench.context(workspace);
  context.counters = counters.as<uint32_t>();
  const kernels::Rows from{.bf16 = x.as<uint16_t>(), .sums = sums.as<float>()};
  const std::string what = std::string(s.what) + " " + std::to_string(s.n) + "x" +
                           std::to_string(s.k) + " " + kernels::name(s.type);
  const int count = std::max(copies, kLaunchesMin);
  for (const int32_t rows : s.rows) {
    const auto turn = [&](int i) {
      Matrix m = w;
      m.data = weights.data() + bytes * static_cast<size_t>(i % copies);
      return m;
    };
    const auto measure = [&](const auto& op_of) {
      bench.measure(kernels::name(op_of(0)), what, rows, kernels::cost(op_of(0)), weights.size(),
                    count, [&](int i) { return cuda::enqueue(op_of(i), context); });
    };
    if (s.paired) {
      measure([&](int i) {
        return kernels::MatMulSwiGlu{
            turn(i), from, rows, {.bf16 = y.as<uint16_t>(), .sums = y_sums.as<float>()}};
      });
    } else {
      measure(
          [&](int i) { return kernels::MatMul{turn(i), from, rows, y.as<float>(), s.n, false}; });
    }
  }
}

}  // namespace

void measure_products(const Bench& bench) {
  for (const Shape& shape : shapes(bench.scale().tiny)) measure_product(bench, shape);
}

}  // namespace headrace::gpu
