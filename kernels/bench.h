#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/limits.h"

namespace headrace::kernels {

// The shapes of one model's forward pass. The default is SmolLM2-135M's.
struct BenchShape {
  int32_t dim = 576;
  int32_t ffn = 1536;
  int32_t heads = 9;
  int32_t kv_heads = 3;
  int32_t head_dim = 64;
  int32_t vocab = 49152;
  WeightType layer = WeightType::kW4Min;
  WeightType head = WeightType::kW8;
};

enum class BenchPart : uint8_t { kAll, kLimits, kAttention };

struct BenchOptions {
  BenchPart part = BenchPart::kAll;
  CpuPath path = CpuPath::kPortable;
  int threads = 1;
  BenchShape shape;
  std::vector<int32_t> rows = {1, 8, 128};  // of a step: decode, batch, prefill chunk
  int32_t context = 512;                    // tokens of KV each row of the step looks at
  // Weights and KV are many copies, visited in turn, that together take this much, as a model's
  // layers do: nothing is found in a cache that a real step would not find there.
  uint64_t working_set = uint64_t{64} << 20;
  double seconds = 10;  // in all, limits included
};

struct BenchRow {
  std::string op;
  std::string what;  // "gate_up 3072x576 w4min"
  int32_t rows = 0;
  double seconds = 0;  // median of the runs
  Cost cost;
  uint64_t working_set = 0;  // bytes that the runs went through
  double memory_share = 0;   // bytes / time / read limit at that working set
  double compute_share = 0;  // operations / time / peak of their kind
  const char* wall() const { return memory_share >= compute_share ? "memory" : "compute"; }
};

struct BenchReport {
  std::string device;
  CpuLimits limits;
  std::vector<BenchRow> rows;
};

// Measures the limits, then every operation, all in one run. `progress` gets 0..1.
BenchReport bench_cpu(const BenchOptions& options, const std::function<void(double)>& progress);

// Two markdown tables: limits, operations.
std::string markdown(const BenchReport& report);
// {"device", "limits", "operations": [...]}; bytes and operations per second, shares as fractions.
std::string json(const BenchReport& report);

}  // namespace headrace::kernels
