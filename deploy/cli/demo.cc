#include <cstdio>
#include <memory>

#include "deploy/cli/commands.h"
#include "deploy/cli/demo_wall.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

constexpr int64_t kDemoThreadsMax = 1024;
constexpr double kDemoSecondsMin = 0.5;
constexpr double kDemoSecondsMax = 600;
constexpr double kDemoSmallSeconds = 2;

int show_wall(const DemoOptions& options) {
  const auto path = cpu_path_of(options.device);
  if (!path) return fail_usage("--device takes a CPU path here, not '" + options.device + "'");
  if (!kernels::supported(*path)) return fail(make_device(options.device, 1).error());
  ProgressBar bar("measuring", false);
  const auto report = demo_wall(options, [&bar](double share) { bar.show(share); });
  bar.finish();
  if (!report) return fail(report.error());
  const std::string text = options.json ? demo_json(*report) + "\n" : demo_text(*report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace

void add_demo(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("demo", "What this machine does, shown with made-up weights");
  command->require_subcommand(1, 1);
  CLI::App* wall = command->add_subcommand(
      "wall", "The memory wall: six comparisons, each prediction beside its measurement");
  const auto options = std::make_shared<DemoOptions>();
  wall->add_option("--device", options->device,
                   "cpu, cpu:portable, cpu:avx2, cpu:avx512vnni, cpu:amx")
      ->check(
          CLI::Validator([](std::string& text) { return check_device_name(text); }, "", "device"))
      ->capture_default_str();
  wall->add_option("--threads", options->threads, "Threads; 0: all there are")
      ->check(whole(0, kDemoThreadsMax))
      ->capture_default_str();
  CLI::Option* seconds = wall->add_option("--seconds", options->seconds,
                                          "How long, about; with --small 2 unless given")
                             ->check(number(kDemoSecondsMin, kDemoSecondsMax))
                             ->capture_default_str();
  wall->add_flag("--small", options->small, "A tiny model: to see that it works, not how fast");
  wall->add_flag("--json", options->json, "One JSON object");
  wall->callback([options, seconds, &action] {
    if (options->small && seconds->count() == 0) options->seconds = kDemoSmallSeconds;
    action = [options] { return show_wall(*options); };
  });
}

}  // namespace headrace::cli
