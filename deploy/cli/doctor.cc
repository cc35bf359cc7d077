#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "protocol/files.h"

namespace headrace::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMeasureThreadsMax = 1024;

struct DoctorOptions {
  int threads = 0;
  std::string state_dir;
  bool measure = false;
  bool strict = false;
  bool json = false;
};

// One finding. A warning is something that makes it slower or that may surprise; a failure is
// something that will not work.
struct Finding {
  const char* level;  // "ok", "warning", "failure"
  std::string what;
  std::string text;
};

Finding check_processor() {
  std::string paths;
  for (auto path :
       {kernels::CpuPath::kPortable, kernels::CpuPath::kAvx2, kernels::CpuPath::kAvx512Vnni}) {
    if (kernels::supported(path)) paths += (paths.empty() ? "" : ", ") + std::string(name(path));
  }
  const auto best = kernels::best_cpu_path();
  const std::string text = "can run " + paths + "; uses " + kernels::name(best);
  return {best == kernels::CpuPath::kPortable ? "warning" : "ok", "processor", text};
}

Finding check_memory() {
  const uint64_t free = memory_available();
  return {free < (uint64_t{1} << 30) ? "warning" : "ok", "memory",
          human_bytes(static_cast<double>(free)) + " available"};
}

Finding check_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  if (line.find("[never]") != line.npos) {
    return {"warning", "huge pages", "switched off: weights are read a few percent slower"};
  }
  return {"ok", "huge pages", line.empty() ? "not known" : "given when asked for"};
}

Finding check_state(const std::string& folder) {
  OsFiles files;
  const std::string probe = folder + "/doctor";
  Status status = files.make_directory(folder);
  if (status.ok()) status = files.write(probe, std::as_bytes(std::span("x", 1)));
  if (!status.ok()) {
    return {"warning", "state folder", status.message + "; limits are measured at each start"};
  }
  if (!files.remove(probe).ok()) return {"warning", "state folder", probe + " cannot be removed"};
  return {"ok", "state folder", folder};
}

Finding check_gpu() {
  const bool there = access("/dev/nvidiactl", F_OK) == 0;
  return {"ok", "gpu",
          there ? "an NVIDIA device is here; this version computes on the processor"
                : "none seen; this version computes on the processor"};
}

Json limits_json(kernels::CpuPath path, int threads, const MachineLimits& limits) {
  Json read = Json::array();
  for (const auto& point : limits.read) {
    read.push_back(
        {{"working_set", point.working_set}, {"bytes_per_second", point.bytes_per_second}});
  }
  return {{"path", kernels::name(path)},
          {"threads", threads},
          {"read", read},
          {"int8_ops_per_second", limits.int8_ops_per_second},
          {"f32_flops_per_second", limits.f32_flops_per_second}};
}

void print_limits(kernels::CpuPath path, int threads, const MachineLimits& limits) {
  std::printf("\nlimits of %d threads, %s\n", threads, kernels::name(path));
  for (const auto& point : limits.read) {
    std::printf("  read %8s       %7.1f GB/s\n",
                human_bytes(static_cast<double>(point.working_set)).c_str(),
                point.bytes_per_second / 1e9);
  }
  std::printf("  int8                %7.1f Gop/s\n", limits.int8_ops_per_second / 1e9);
  std::printf("  float32             %7.1f GFLOP/s\n", limits.f32_flops_per_second / 1e9);
}

int doctor(const DoctorOptions& options) {
  const std::string folder = state_folder(options.state_dir);
  const std::vector<Finding> findings{check_processor(), check_memory(), check_huge_pages(),
                                      check_state(folder), check_gpu()};
  const auto path = kernels::best_cpu_path();
  const int threads = usable_threads(options.threads);
  if (options.measure) forget_limits(folder);
  ProgressBar bar("measuring this machine", false);
  const MachineLimits limits =
      machine_limits(folder, path, threads, options.measure ? kPatientMeasure : kQuickMeasure,
                     [&bar](double share) { bar.show(share); });
  bar.finish();
  bool bad = false;
  Json list = Json::array();
  for (const auto& f : findings) {
    const std::string level = f.level;
    bad = bad || level == "failure" || (options.strict && level == "warning");
    list.push_back({{"level", level}, {"what", f.what}, {"text", f.text}});
    if (!options.json) std::printf("%-8s %-13s %s\n", f.level, f.what.c_str(), f.text.c_str());
  }
  if (options.json) {
    print_json({{"version", HEADRACE_VERSION},
                {"ok", !bad},
                {"cpu", processor_name()},
                {"findings", list},
                {"limits", limits_json(path, threads, limits)}});
  } else {
    std::printf("%-8s %-13s %s\n", "", "name", processor_name().c_str());
    print_limits(path, threads, limits);
  }
  return bad ? kExitFailed : kExitOk;
}

}  // namespace

void add_doctor(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("doctor", "What this machine can do, measured");
  const auto options = std::make_shared<DoctorOptions>();
  command->add_option("--threads", options->threads, "Threads to measure with; 0: all there are")
      ->check(whole(0, kMeasureThreadsMax));
  command->add_option("--state-dir", options->state_dir, "Folder that keeps what was measured");
  command->add_flag("--measure", options->measure, "Measure anew, with more patience");
  command->add_flag("--strict", options->strict, "Warnings are failures");
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options, &action] { action = [options] { return doctor(*options); }; });
}

}  // namespace headrace::cli
