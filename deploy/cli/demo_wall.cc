#include "deploy/cli/demo_wall.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "deploy/cli/machine.h"
#include "deploy/cli/options.h"
#include "kernels/limits.h"

namespace headrace::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kDemoFormatLayers = 4;  // bf16 of all layers would want the fourfold memory
constexpr double kDemoLimitShare = 0.02;   // of the seconds

// What is measured of the shape.
struct DemoPlan {
  DemoShape shape;
  uint32_t format_layers = kDemoFormatLayers;
  uint32_t prompt = 512, batch_context = 128, format_context = 128;
  std::vector<uint32_t> batches = {1, 8, 16};
  std::vector<uint32_t> contexts = {512, 2048, 4096, 8192};
};

DemoPlan plan_of(const DemoOptions& options) {
  DemoPlan plan;
  if (!options.small) return plan;
  plan.shape = {.layers = 4,
                .dim = 128,
                .ffn = 256,
                .heads = 4,
                .kv_heads = 2,
                .head_dim = 32,
                .vocab = 512,
                .context = 512};
  plan.format_layers = 2;
  plan.prompt = 64;
  plan.batch_context = plan.format_context = 32;
  plan.contexts = {32, 64, 128, 256};
  return plan;
}

// Seconds a token: the line of least squares.
double slope_of(const std::vector<DemoRow>& rows) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const DemoRow& row : rows) {
    x += row.context;
    y += row.seconds;
    xx += double{1} * row.context * row.context;
    xy += row.context * row.seconds;
  }
  const auto n = static_cast<double>(rows.size());
  return (n * xy - x * y) / (n * xx - x * x);
}

class DemoWall {
 public:
  DemoWall(const DemoOptions& options, const std::function<void(double)>& progress)
      : o_(options), plan_(plan_of(options)), progress_(progress) {}

  Result<DemoReport> run() {
    const auto start = Clock::now();
    report_.device = o_.device;
    report_.threads = usable_threads(o_.threads);
    report_.shape = plan_.shape;
    measure_limits();
    if (Status s = whole_model(); !s.ok()) return s;
    if (Status s = formats(); !s.ok()) return s;
    serve_demos(report_);
    progress_(1);
    report_.wall_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void step() { progress_(std::min(1.0, ++steps_ / kSteps)); }

  void measure_limits() {
    const auto now = kernels::measure_cpu_limits(*cpu_path_of(o_.device), report_.threads,
                                                 std::max(0.2, o_.seconds * kDemoLimitShare),
                                                 uint64_t{1} << 20, [](double) {});
    report_.limits.int8_ops_per_second = now.int8_ops_per_second;
    report_.limits.f32_flops_per_second = now.f32_flops_per_second;
    for (const auto& point : now.read)
      report_.limits.read.push_back({point.working_set, point.bytes_per_second});
    step();
  }

  // Sections 1, 3 and 4.
  Status whole_model() {
    uint32_t blocks = demo_blocks(plan_.batches.back(), plan_.batch_context);
    blocks = std::max(blocks, demo_blocks(1, std::max(plan_.contexts.back(), plan_.prompt)));
    auto engine = make_demo_engine(plan_.shape, o_.device, o_.threads, blocks);
    if (!engine) return engine.error();
    step();
    report_.kv_token_bytes = (*engine)->card().cost.kv_token_bytes;
    report_.device = (*engine)->device().name();
    DemoLines lines(o_, plan_.shape, report_.limits, **engine);
    const auto add = [this](std::vector<DemoRow>& to, DemoRow row) {
      to.push_back(std::move(row));
      step();
    };
    add(report_.phases, lines.prefill(plan_.prompt));
    add(report_.phases, lines.decode(1, report_.phases[0].prompt));
    for (const uint32_t batch : plan_.batches)
      add(report_.batches, lines.decode(batch, plan_.batch_context));
    for (const uint32_t context : plan_.contexts) add(report_.contexts, lines.decode(1, context));
    for (auto* rows : {&report_.phases, &report_.batches, &report_.contexts}) lines.judge(*rows);
    report_.slope = slope_of(report_.contexts);
    report_.slope_predicted =
        static_cast<double>(report_.kv_token_bytes) / report_.contexts[0].read_limit;
    return {};
  }

  Status formats() {
    for (const auto type :
         {kernels::SourceType::kBf16, kernels::SourceType::kQ8_0, kernels::SourceType::kQ4_0}) {
      DemoShape shape = plan_.shape;
      shape.type = type;
      shape.layers = plan_.format_layers;
      auto engine =
          make_demo_engine(shape, o_.device, o_.threads, demo_blocks(1, plan_.format_context));
      if (!engine) return engine.error();
      step();
      DemoLines lines(o_, shape, report_.limits, **engine);
      std::vector<DemoRow> row{lines.decode(1, plan_.format_context)};
      lines.judge(row);
      report_.formats.push_back(row[0]);
      step();
    }
    return {};
  }

  static constexpr double kSteps = 1 + 1 + 2 + 3 + 4 + 6;
  const DemoOptions& o_;
  const DemoPlan plan_;
  const std::function<void(double)>& progress_;
  double steps_ = 0;
  DemoReport report_;
};

}  // namespace

void serve_demos(DemoReport& report) {
  // KV for eight whole contexts; prompts and answers as people write them.
  report.room_mix = {
      .count = 256, .prompt_min = 32, .prompt_max = 1024, .answer_min = 16, .answer_max = 512};
  report.room.context = 4096;
  report.room.blocks = 8 * report.room.context / kDemoServingBlock;
  const auto asks = demo_asks(report.room_mix);
  for (const bool contiguous : {true, false}) {
    DemoPolicy policy = report.room;
    policy.contiguous = contiguous;
    report.rooms.push_back({contiguous ? "contiguous" : "pages", predict_demo(asks, policy),
                            serve_demo(asks, policy)});
  }
  // Enough KV for all, prompts of one step: what is idle is so for the answers' lengths alone.
  report.batch_mix = {
      .count = 512, .prompt_min = 16, .prompt_max = 16, .answer_min = 8, .answer_max = 256};
  report.batch.context = 512;
  report.batch.slots = 16;
  report.batch.token_budget = report.batch.slots * report.batch_mix.prompt_max;
  report.batch.blocks = report.batch.slots * report.batch.context / kDemoServingBlock;
  const auto answers = demo_asks(report.batch_mix);
  for (const bool waits : {true, false}) {
    DemoPolicy policy = report.batch;
    policy.waits_for_all = waits;
    report.orders.push_back({waits ? "static" : "continuous", predict_demo(answers, policy),
                             serve_demo(answers, policy)});
  }
}

Result<DemoReport> demo_wall(const DemoOptions& options,
                             const std::function<void(double)>& progress) {
  return DemoWall(options, progress).run();
}

}  // namespace headrace::cli
