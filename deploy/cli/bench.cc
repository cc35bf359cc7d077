#include "kernels/bench.h"

#include <cstdio>
#include <memory>

#include "deploy/cli/bench_model.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

constexpr int64_t kThreadsMax = 1024;
constexpr double kSecondsMin = 0.5;
constexpr double kSecondsMax = 600;
constexpr int64_t kBatchMax = 1024;
constexpr int64_t kTokensMax = 1 << 20;
constexpr int64_t kMibMax = 1 << 16;
constexpr int64_t kHeadsMax = 1024;

struct BenchCommand {
  std::string device = "auto";
  int threads = 0;
  double seconds = 10;
  uint32_t mib = 64;  // of the largest working set
  kernels::BenchShape shape;
  std::vector<int32_t> rows = {1, 8, 128};
  int32_t context = 512;
  bool json = false;
};

int bench(const BenchCommand& command, kernels::BenchPart part) {
  const auto path = cpu_path_of(command.device);
  if (!path) return fail_usage("--device takes a CPU path here, not '" + command.device + "'");
  if (!kernels::supported(*path)) return fail(make_device(command.device, 1).error());
  if (command.shape.heads % command.shape.kv_heads != 0)
    return fail_usage("--heads is no multiple of --kv-heads");
  kernels::BenchOptions options;
  options.part = part;
  options.path = *path;
  options.threads = usable_threads(command.threads);
  options.seconds = command.seconds;
  options.shape = command.shape;
  options.rows = command.rows;
  options.context = command.context;
  options.working_set = uint64_t{command.mib} << 20;
  if (options.working_set > memory_available() / 2)
    return fail_usage("--mib " + std::to_string(command.mib) + " is more than half of the memory");
  ProgressBar bar("measuring", false);
  const auto report = kernels::bench_cpu(options, [&bar](double share) { bar.show(share); });
  bar.finish();
  const std::string text = command.json ? kernels::json(report) + "\n" : kernels::markdown(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

int print_model_bench(const ModelBenchOptions& options) {
  const auto report = bench_model(options);
  if (!report) return fail(report.error());
  const std::string text =
      options.json ? model_bench_json(*report) + "\n" : model_bench_markdown(*report, options.what);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

void add_common(CLI::App& command, BenchCommand& options) {
  command.add_option("--device", options.device, "auto, cpu:portable, cpu:avx2, cpu:avx512vnni, cpu:amx")
      ->check(
          CLI::Validator([](std::string& text) { return check_device_name(text); }, "", "device"))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Threads; 0: all there are")
      ->check(whole(0, kThreadsMax))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "How long, about")
      ->check(number(kSecondsMin, kSecondsMax))
      ->capture_default_str();
  command.add_flag("--json", options.json, "One JSON object");
}

void add_bandwidth(CLI::App& bench_command, Action& action) {
  CLI::App* command = bench_command.add_subcommand(
      "bandwidth", "What memory gives at working sets from 1 MiB on, and the peaks of arithmetic");
  const auto options = std::make_shared<BenchCommand>();
  options->mib = 1024;
  add_common(*command, *options);
  command->add_option("--mib", options->mib, "The largest working set")
      ->check(whole(1, kMibMax))
      ->capture_default_str();
  command->callback([options, &action] {
    action = [options] { return bench(*options, kernels::BenchPart::kLimits); };
  });
}

void add_attention(CLI::App& bench_command, Action& action) {
  CLI::App* command = bench_command.add_subcommand(
      "attention", "Attention over paged KV, each row a sequence of its own");
  const auto options = std::make_shared<BenchCommand>();
  options->mib = 512;
  options->shape.heads = 32;
  options->shape.kv_heads = 8;
  options->context = 4096;
  options->rows = {1, 8};
  add_common(*command, *options);
  command->add_option("--mib", options->mib, "KV that the runs go through, at least")
      ->check(whole(1, kMibMax))
      ->capture_default_str();
  command->add_option("--heads", options->shape.heads, "Heads of queries")
      ->check(whole(1, kHeadsMax))
      ->capture_default_str();
  command->add_option("--kv-heads", options->shape.kv_heads, "Heads of keys and values")
      ->check(whole(1, kHeadsMax))
      ->capture_default_str();
  command->add_option("--head-dim", options->shape.head_dim, "Width of a head")
      ->check(whole(2, kHeadsMax))
      ->capture_default_str();
  command->add_option("--context", options->context, "Tokens that each row looks at")
      ->check(whole(1, kTokensMax))
      ->capture_default_str();
  command->add_option("--batch", options->rows, "Rows of a step: 1,8")
      ->delimiter(',')
      ->check(whole(1, kBatchMax))
      ->capture_default_str();
  command->callback([options, &action] {
    action = [options] { return bench(*options, kernels::BenchPart::kAttention); };
  });
}

void add_model(CLI::App& bench_command, Action& action, const char* name, const char* about,
               ModelBenchOptions::What what) {
  CLI::App* command = bench_command.add_subcommand(name, about);
  const auto options = std::make_shared<ModelBenchOptions>();
  options->what = what;
  command->add_option("model", options->model, "GGUF file")->required();
  options->engine.add_to(*command);
  const bool prefill = what == ModelBenchOptions::What::kPrefill;
  if (prefill) options->prompts = {512};
  command
      ->add_option("--prompt", options->prompts,
                   prefill ? "Tokens of a prompt: 128,512" : "Tokens prefilled before the steps")
      ->delimiter(',')
      ->expected(1, prefill ? 64 : 1)
      ->check(whole(1, kTokensMax))
      ->capture_default_str();
  if (prefill) {
    command->add_option("--rounds", options->rounds, "Prompts of each length")
        ->check(whole(1, kBatchMax))
        ->capture_default_str();
  } else {
    command->add_option("--batch", options->batches, "Sequences of a step: 1,8")
        ->delimiter(',')
        ->check(whole(1, kBatchMax))
        ->capture_default_str();
    command
        ->add_option("--context", options->context,
                     "Tokens of made-up KV in the place of a prompt; 0: none")
        ->check(whole(0, kTokensMax))
        ->capture_default_str();
    command->add_option("--tokens", options->tokens, "Steps measured of each batch")
        ->check(whole(1, kTokensMax))
        ->capture_default_str();
  }
  command->add_flag("--json", options->json, "One JSON object");
  command->callback(
      [options, &action] { action = [options] { return print_model_bench(*options); }; });
}

}  // namespace

void add_bench(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand(
      "bench", "Operations and whole steps against the limits of this machine, in the same run");
  command->require_subcommand(0, 1);
  const auto options = std::make_shared<BenchCommand>();
  add_common(*command, *options);
  add_bandwidth(*command, action);
  add_attention(*command, action);
  add_model(*command, action, "decode", "Decode steps of a whole model",
            ModelBenchOptions::What::kDecode);
  add_model(*command, action, "prefill", "Prompts through a whole model",
            ModelBenchOptions::What::kPrefill);
  add_model(*command, action, "step", "Decode steps, told apart by operation",
            ModelBenchOptions::What::kStep);
  command->callback([command, options, &action] {
    if (!command->get_subcommands().empty()) return;
    action = [options] { return bench(*options, kernels::BenchPart::kAll); };
  });
}

}  // namespace headrace::cli
