#include "deploy/cli/demo_lines.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "deploy/cli/machine.h"
#include "deploy/cli/options.h"
#include "kernels/limits.h"
#include "kernels/ops.h"

namespace headrace::cli {

namespace {

using worker::BenchRun;
using worker::EngineBench;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDemoStepsMin = 3, kDemoStepsMax = 48, kDemoWarmSteps = 1;
constexpr uint32_t kDemoPromptsMax = 5;
constexpr uint32_t kDemoPromptMin = 32;   // tokens, where a longer one takes too long
constexpr double kDemoLineShare = 0.04;   // of the seconds, for the runs of a line
constexpr double kDemoReadShare = 0.003;  // before the runs of a line

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

double DemoRow::flops_per_byte() const {
  return static_cast<double>(cost.flops) / static_cast<double>(cost.bytes());
}

DemoLines::DemoLines(const DemoOptions& options, const DemoShape& shape,
                     const MachineLimits& limits, worker::ModelEngine& engine)
    : o_(options), shape_(shape), path_(*cpu_path_of(options.device)), engine_(engine) {
  model_.limits = limits;
  model_.cost = engine.card().cost;
}

DemoRow DemoLines::prefill(uint32_t prompt) {
  DemoRow row = begin();
  EngineBench bench(engine_, 1, prompt);
  const uint32_t trial = std::min(prompt, kDemoPromptMin);
  const double token = bench.prefill(trial).seconds / trial;
  while (prompt > trial && prompt * token > budget()) prompt /= 2;
  row.prompt = prompt;
  look(prompt);
  measure(row, kDemoPromptsMax, 1, [&] {
    bench.clear();
    return bench.prefill(prompt);
  });
  return row;
}

DemoRow DemoLines::decode(uint32_t batch, uint32_t context) {
  DemoRow row = begin();
  row.batch = batch;
  EngineBench bench(engine_, batch, context + kDemoWarmSteps + kDemoStepsMax);
  bench.fill(context);
  for (uint32_t i = 0; i < kDemoWarmSteps; i++) bench.decode();
  look(uint64_t{batch} * context);
  measure(row, kDemoStepsMax, kDemoStepsMin, [&] { return bench.decode(); });
  row.context = context + kDemoWarmSteps + row.runs / 2;
  return row;
}

void DemoLines::judge(std::vector<DemoRow>& rows) {
  model_.limits.read = {{1, read_}};
  for (DemoRow& row : rows) {
    row.predicted = in_seconds(
        row.prompt > 0 ? predict_prefill(model_, row.prompt, 0)
                       : predict_decode_step(model_, row.batch, uint64_t{row.batch} * row.context));
    row.read_limit = read_;
    row.memory_share = static_cast<double>(row.cost.bytes()) / read_ / row.seconds;
  }
}

double DemoLines::budget() const { return o_.seconds * kDemoLineShare; }

DemoRow DemoLines::begin() const {
  DemoRow row;
  row.weights = name(kernels::packed_type(shape_.type));
  row.layers = shape_.layers;
  return row;
}

// What memory gives now, at the bytes that a step goes through.
void DemoLines::look(uint64_t tokens) {
  const uint64_t bytes = model_.cost.weight_bytes + tokens * model_.cost.kv_token_bytes;
  const auto now =
      kernels::measure_read(path_, usable_threads(o_.threads), bytes, o_.seconds * kDemoReadShare);
  read_ = std::max(read_, now.bytes_per_second);
}

void DemoLines::measure(DemoRow& row, uint32_t most, uint32_t least,
                        const std::function<BenchRun()>& one) {
  std::vector<BenchRun> runs;
  const auto start = Clock::now();
  while (runs.size() < least ||
         (runs.size() < most && Clock::now() - start < std::chrono::duration<double>(budget())))
    runs.push_back(one());
  std::sort(runs.begin(), runs.end(),
            [](const BenchRun& a, const BenchRun& b) { return a.seconds < b.seconds; });
  const BenchRun& middle = runs[runs.size() / 2];
  row.runs = static_cast<uint32_t>(runs.size());
  row.seconds = middle.seconds;
  row.low = runs[runs.size() / 10].seconds;
  row.high = runs[runs.size() - 1 - runs.size() / 10].seconds;
  row.cost = middle.cost();
  for (const auto& account : middle.accounts) {
    const std::string_view op = account.op;
    const double peak = kernels::is_product(op) ? product_peak(model_.limits, model_.cost.quantized)
                                                : attention_peak(model_.limits);
    row.compute_share += static_cast<double>(account.cost.flops) / peak / row.seconds;
    // Rows of the embedding that were looked up are none of the weights that every step reads.
    if (op == kernels::name(kernels::Embed{})) row.looked_up = account.cost.weight_bytes;
  }
}

uint32_t demo_blocks(uint32_t batch, uint32_t context) {
  const uint32_t tokens = context + kDemoWarmSteps + kDemoStepsMax;
  return batch * ((tokens + kDemoBlockTokens - 1) / kDemoBlockTokens);
}

}  // namespace headrace::cli
