#include "kernels/bench.h"

#include <cstdio>
#include <memory>

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

struct BenchCommand {
  std::string device = "auto";
  int threads = 0;
  double seconds = 10;
  bool json = false;
};

int bench(const BenchCommand& command) {
  const auto path = cpu_path_of(command.device);
  if (!path) return fail_usage("--device takes a CPU path here, not '" + command.device + "'");
  if (!kernels::supported(*path)) return fail(make_device(command.device, 1).error());
  kernels::BenchOptions options;
  options.path = *path;
  options.threads = usable_threads(command.threads);
  options.seconds = command.seconds;
  ProgressBar bar("measuring", false);
  const auto report = kernels::bench_cpu(options, [&bar](double share) { bar.show(share); });
  bar.finish();
  const std::string text = command.json ? kernels::json(report) + "\n" : kernels::markdown(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace

void add_bench(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand(
      "bench", "Every operation against the limits of this machine, measured in the same run");
  const auto options = std::make_shared<BenchCommand>();
  command->add_option("--device", options->device, "auto, cpu:portable, cpu:avx2, cpu:avx512vnni")
      ->check(
          CLI::Validator([](std::string& text) { return check_device_name(text); }, "", "device"))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0: all there are")
      ->check(whole(0, kThreadsMax))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "How long, about")
      ->check(number(kSecondsMin, kSecondsMax))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options, &action] { action = [options] { return bench(*options); }; });
}

}  // namespace headrace::cli
