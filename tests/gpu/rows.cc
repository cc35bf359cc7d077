#include <algorithm>
#include <string>

#include "kernels/activation.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rows.h"
#include "tests/gpu/bench.h"

// What is neither a product nor attention: operations on rows, on logits, on blocks of KV.

namespace headrace::gpu {
namespace {

using kernels::Buffer;

constexpr int kLaunches = 16;

struct Widths {
  int32_t dim, ffn, vocab;
  std::vector<int32_t> rows, choices;
};

Widths widths(bool tiny) {
  if (tiny) return {64, 128, 256, {1, 3}, {1}};
  return {4096, 14336, 128256, {1, 32, 512, 4096}, {1, 32, 128}};
}

std::string wide(int32_t width) { return std::to_string(width) + " wide"; }

// y and x of `rows` rows; the launches of a graph follow one another as a step's do.
void measure_rows_of(const Bench& bench, const Widths& w, int32_t rows) {
  const auto n = static_cast<size_t>(rows);
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(w.ffn));
  const Buffer x = bench.numbers(n * 2 * static_cast<size_t>(w.ffn) * sizeof(float));
  const Buffer gain = bench.numbers(static_cast<size_t>(w.dim) * sizeof(float));
  const Buffer y = bench.memory(n * pitch * sizeof(float));
  const Buffer bf16 = bench.memory(n * pitch * sizeof(uint16_t));
  const Buffer sums = bench.memory(n * pitch / 32 * sizeof(float));
  const kernels::RowsOut out{.bf16 = bf16.as<uint16_t>(), .sums = sums.as<float>()};
  const auto measure = [&](const auto& op, int32_t width, uint64_t set = 0) {
    bench.measure(kernels::name(op), wide(width), rows, kernels::cost(op), set, kLaunches,
                  [&](int) { return cuda::enqueue(op, bench.context()); });
  };
  measure(kernels::RmsNorm{x.as<float>(), gain.as<float>(), rows, w.dim, 1e-5f, out}, w.dim);
  measure(kernels::SwiGlu{x.as<float>(), rows, w.ffn, out}, w.ffn);
  std::vector<int32_t> places(n);
  for (size_t i = 0; i < n; ++i) places[i] = static_cast<int32_t>((i * 7919) % n);
  const Buffer index = bench.values(places);
  measure(kernels::GatherRows{x.as<float>(), index.as<int32_t>(), rows, w.dim, y.as<float>()},
          w.dim);
  kernels::Matrix table{kernels::WeightType::kW8, w.vocab, w.dim, nullptr,
                        kernels::Tiling::kFragments};
  const Buffer weights = bench.numbers(table.bytes());
  table.data = weights.data();
  for (size_t i = 0; i < n; ++i)
    places[i] = static_cast<int32_t>((i * 7919) % static_cast<size_t>(w.vocab));
  const Buffer ids = bench.values(places);
  measure(kernels::Embed{table, ids.as<int32_t>(), rows, y.as<float>()}, w.dim, weights.size());
}

void measure_choice(const Bench& bench, const Widths& w, int32_t rows) {
  const auto n = static_cast<size_t>(rows);
  const int32_t vocab = w.vocab, edits = std::min(vocab / 4, 1000);
  const Buffer logits = bench.numbers(n * static_cast<size_t>(vocab) * sizeof(float));
  const auto measure = [&](const auto& op, const std::string& what, size_t workspace) {
    const Buffer scratch = bench.memory(workspace);
    bench.measure(kernels::name(op), what, rows, kernels::cost(op), 0, kLaunches,
                  [&](int) { return cuda::enqueue(op, bench.context(scratch)); });
  };
  const std::string of = " of " + std::to_string(vocab);
  std::vector<kernels::LogitEdit> all;
  std::vector<int32_t> begins{0};
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t i = 0; i < edits; ++i) all.push_back({i * (vocab / edits), 1, 0});
    begins.push_back(static_cast<int32_t>(all.size()));
  }
  const Buffer edit = bench.values(all), begin = bench.values(begins);
  measure(kernels::AdjustLogits{logits.as<float>(), edit.as<kernels::LogitEdit>(),
                                begin.as<int32_t>(), rows, vocab, vocab, begins.data()},
          std::to_string(edits) + " edits", 0);
  constexpr int32_t kTop = 20;
  const std::vector<int32_t> counts(n, kTop);
  const Buffer count = bench.values(counts), chosen = bench.values(std::vector<int32_t>(n, 1));
  const Buffer own = bench.memory(n * sizeof(float)), top = bench.memory(n * kTop * sizeof(float)),
               top_ids = bench.memory(n * kTop * sizeof(int32_t));
  const kernels::LogProbs log_probs{logits.as<float>(),
                                    chosen.as<int32_t>(),
                                    count.as<int32_t>(),
                                    rows,
                                    vocab,
                                    vocab,
                                    kTop,
                                    own.as<float>(),
                                    top_ids.as<int32_t>(),
                                    top.as<float>(),
                                    counts.data()};
  measure(log_probs, std::to_string(kTop) + of, cuda::workspace_bytes(log_probs));
  const Buffer ids = bench.memory(n * sizeof(int32_t));
  for (const float temperature : {0.0f, 0.8f}) {
    const std::vector<kernels::SampleRow> params(
        n, kernels::SampleRow{temperature, 40, 0.95f, 0, 1, 0});
    const Buffer device = bench.values(params);
    const kernels::Sample sample{
        logits.as<float>(), device.as<kernels::SampleRow>(), rows, vocab, vocab, ids.as<int32_t>(),
        params.data()};
    measure(sample, (temperature > 0 ? "top-k 40, top-p 0.95" : "greedy") + of,
            cuda::workspace_bytes(sample));
  }
}

// Blocks of 32 tokens of all layers of an 8B model, as a hand-off takes them.
void measure_blocks(const Bench& bench) {
  const bool tiny = bench.scale().tiny;
  const size_t block = tiny ? 4096 : size_t{4} << 20;
  const uint32_t count = tiny ? 2 : 32;
  const uint32_t slice = tiny ? 1024 : uint32_t{256} << 10;
  const Buffer pool = bench.numbers(2 * count * block), staged = bench.memory(count * block);
  std::vector<uint32_t> host(count);
  for (uint32_t i = 0; i < count; ++i) host[i] = 2 * i;
  const Buffer ids = bench.values(host);
  const std::string what = std::to_string(count) + " blocks of " + std::to_string(block) + " B";
  for (const bool in : {false, true}) {
    cuda::CopyBlocks op{pool.data(), block, ids.as<uint32_t>(), count, staged.data(), in, slice};
    const Buffer sums = bench.memory(count * cuda::slices_of_block(op) * sizeof(uint32_t));
    op.sums = sums.as<uint32_t>();
    bench.measure(in ? "block_copy, in" : "block_copy, out", what, static_cast<int32_t>(count),
                  cuda::cost(op), 0, 2, [&](int) { return cuda::enqueue(op, bench.context()); });
  }
  const cuda::ZeroBlocks zero{pool.data(), block, host.data(), count};
  bench.measure("zero_blocks", what, static_cast<int32_t>(count), cuda::cost(zero), 0, 2,
                [&](int) { return cuda::enqueue(zero, bench.context()); });
  const cuda::CopyBytes copy{staged.data(), pool.data(), count * block};
  bench.measure("copy", std::to_string(copy.bytes) + " B", 1, cuda::cost(copy), 0, 2,
                [&](int) { return cuda::enqueue(copy, bench.stream()); });
}

// What goes before the library's products (--prefill-gemm library).
void measure_dequantize(const Bench& bench, const Widths& w) {
  kernels::Matrix m{kernels::WeightType::kW4, w.dim, w.ffn, nullptr, kernels::Tiling::kFragments};
  const Buffer weights = bench.numbers(m.bytes());
  m.data = weights.data();
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(w.ffn));
  const Buffer y = bench.memory(static_cast<size_t>(w.dim) * pitch * sizeof(uint16_t));
  const cuda::Dequantize op{m, 0, m.tiles(), y.as<uint16_t>()};
  bench.measure("dequantize", std::to_string(w.dim) + "x" + std::to_string(w.ffn) + " w4", w.dim,
                cuda::cost(op), 0, 2, [&](int) { return cuda::enqueue(op, bench.context()); });
}

}  // namespace

void measure_rows(const Bench& bench) {
  const Widths w = widths(bench.scale().tiny);
  for (const int32_t rows : w.rows) measure_rows_of(bench, w, rows);
  for (const int32_t rows : w.choices) measure_choice(bench, w, rows);
  measure_blocks(bench);
  measure_dequantize(bench, w);
}

}  // namespace headrace::gpu
