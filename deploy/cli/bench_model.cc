#include "deploy/cli/bench_model.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "deploy/cli/loaded_model.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/output.h"
#include "kernels/limits.h"
#include "kernels/ops.h"

namespace headrace::cli {

namespace {

using worker::BenchRun;
using worker::EngineBench;

constexpr double kReadSeconds = 0.4;  // before the steps of a row, and again behind them
constexpr uint32_t kWarmSteps = 2;

class ModelBench {
 public:
  ModelBench(const ModelBenchOptions& options, LoadedModel& model)
      : o_(options), model_(model), cpu_(cpu_path_of(options.engine.device)) {}

  ModelBenchReport run() {
    ModelBenchReport report{o_.model, model_.device, limits(), {}};
    limits_ = report.limits;
    if (o_.what == ModelBenchOptions::What::kPrefill) {
      for (const uint32_t prompt : o_.prompts) report.rows.push_back(prefill(prompt));
    } else {
      for (const uint32_t batch : o_.batches) report.rows.push_back(decode(batch));
    }
    return report;
  }

 private:
  // Those of this hour, where a CPU can be measured in a second.
  MachineLimits limits() const {
    MachineLimits all = model_.limits;
    if (!cpu_) return all;
    const auto now = kernels::measure_cpu_limits(*cpu_, usable_threads(o_.engine.threads), 1.0,
                                                 uint64_t{1} << 20, [](double) {});
    all.int8_ops_per_second = now.int8_ops_per_second;
    all.f32_flops_per_second = now.f32_flops_per_second;
    return all;
  }

  double read_now(uint64_t working_set) const {
    if (!cpu_) return headrace::read_limit(limits_, working_set);
    return kernels::measure_read(*cpu_, usable_threads(o_.engine.threads), working_set,
                                 kReadSeconds)
        .bytes_per_second;
  }

  uint64_t working_set(uint32_t batch, uint32_t tokens) const {
    const ModelCost& cost = model_.card().cost;
    return cost.weight_bytes + uint64_t{batch} * tokens * cost.kv_token_bytes;
  }

  ModelBenchRow decode(uint32_t batch) {
    ModelBenchRow row;
    row.batch = batch;
    const bool made_up = o_.context > 0;
    const uint32_t before = made_up ? o_.context : o_.prompts.front();
    row.prompt = made_up ? 0 : before;
    row.context = before;
    EngineBench bench(*model_.engine, batch, before + kWarmSteps + o_.tokens);
    if (made_up) {
      bench.fill(before);
    } else {
      const BenchRun prompt = bench.prefill(before);
      row.prefill_tokens_per_second = per(static_cast<double>(batch) * before, prompt.seconds);
    }
    const double read_before = read_now(working_set(batch, before));
    for (uint32_t i = 0; i < kWarmSteps; i++) bench.decode();
    std::vector<BenchRun> runs;
    for (uint32_t i = 0; i < o_.tokens; i++) runs.push_back(bench.decode());
    double all = 0;
    for (const BenchRun& run : runs) all += run.seconds;
    row.decode_tokens_per_second = per(static_cast<double>(batch) * o_.tokens, all);
    judge(row, std::move(runs), std::max(read_before, read_now(working_set(batch, before))));
    return row;
  }

  ModelBenchRow prefill(uint32_t prompt) {
    ModelBenchRow row;
    row.prompt = prompt;
    EngineBench bench(*model_.engine, 1, prompt);
    const double read_before = read_now(working_set(1, prompt));
    std::vector<BenchRun> runs;
    for (uint32_t i = 0; i < o_.rounds; i++) {
      bench.clear();
      runs.push_back(bench.prefill(prompt));
    }
    judge(row, std::move(runs), std::max(read_before, read_now(working_set(1, prompt))));
    row.prefill_tokens_per_second = per(prompt, row.seconds);
    return row;
  }

  // What the median run took, of what it had to move and compute.
  void judge(ModelBenchRow& row, std::vector<BenchRun> runs, double read) const {
    std::sort(runs.begin(), runs.end(),
              [](const BenchRun& a, const BenchRun& b) { return a.seconds < b.seconds; });
    const BenchRun& middle = runs[runs.size() / 2];
    row.seconds = middle.seconds;
    row.low = runs[runs.size() / 10].seconds;
    row.high = runs[runs.size() - 1 - runs.size() / 10].seconds;
    row.cost = middle.cost();
    row.accounts = middle.accounts;
    row.read_limit = read;
    row.memory_share = per(per(static_cast<double>(row.cost.bytes()), read), row.seconds);
    double compute = 0;
    for (const auto& account : middle.accounts) {
      const std::string_view op = account.op;
      compute += per(static_cast<double>(account.cost.flops),
                     kernels::is_product(op) ? product_peak(limits_, model_.card().cost.quantized)
                                             : attention_peak(limits_));
    }
    row.compute_share = per(compute, row.seconds);
    row.outside_share = per(row.seconds - middle.inside(), row.seconds);
  }

  const ModelBenchOptions& o_;
  LoadedModel& model_;
  const std::optional<kernels::CpuPath> cpu_;
  MachineLimits limits_;
};

// Tokens that a sequence will have.
uint64_t tokens_of(const ModelBenchOptions& o) {
  if (o.what == ModelBenchOptions::What::kPrefill)
    return *std::max_element(o.prompts.begin(), o.prompts.end());
  return uint64_t{o.context > 0 ? o.context : o.prompts.front()} + kWarmSteps + o.tokens;
}

}  // namespace

Result<ModelBenchReport> bench_model(const ModelBenchOptions& options) {
  const uint64_t tokens = tokens_of(options);
  const uint32_t batch = options.what == ModelBenchOptions::What::kPrefill
                             ? 1
                             : *std::max_element(options.batches.begin(), options.batches.end());
  EngineOptions engine = options.engine;
  if (engine.kv_blocks == 0) {
    const uint64_t each = (tokens + engine.block_tokens - 1) / engine.block_tokens;
    engine.kv_blocks = static_cast<uint32_t>(each * batch);
  }
  auto model = load_model(options.model, engine, 1, false);
  if (!model) return model.error();
  const ModelCard& card = model->card();
  if (tokens > card.context)
    return error(Errc::kInvalid, std::to_string(tokens) + " tokens a sequence are more than the " +
                                     std::to_string(card.context) + " of the model's context");
  if (batch > model->engine->rows_max())
    return error(Errc::kInvalid, "--batch " + std::to_string(batch) + " is more than the " +
                                     std::to_string(model->engine->rows_max()) + " rows of a step");
  const uint64_t blocks = EngineBench::blocks_for(card, batch, static_cast<uint32_t>(tokens));
  if (blocks > model->engine->blocks())
    return error(Errc::kOverloaded, "the bench needs " + std::to_string(blocks) +
                                        " KV blocks, there are " +
                                        std::to_string(model->engine->blocks()));
  return ModelBench(options, *model).run();
}

}  // namespace headrace::cli
