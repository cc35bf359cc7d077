#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/link_pairs.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "kernels/cuda_device.h"
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
  LinkOptions links;
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
  for (const auto path : kernels::kCpuPaths) {
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

Finding check_gpu(const std::vector<kernels::GpuInfo>& gpus, const std::string& why) {
  if (!gpus.empty())
    return {"ok", "gpu", std::to_string(gpus.size()) + " to compute on; limits below"};
  const bool there = access("/dev/nvidiactl", F_OK) == 0;
  return {there ? "warning" : "ok", "gpu",
          (there ? "an NVIDIA device is here and not used: " : "none is used: ") + why};
}

// Whether KV may go over NCCL. Nothing to say where it is not wanted.
std::optional<Finding> check_nccl(const TransportOptions& transport, bool& there) {
  TransportOptions any = transport;
  if (any.handoff == "nccl") any.handoff = "auto";
  const auto choice = any.choose("cuda:0");
  there = choice && choice->lanes;
  if (!choice || choice->sentence.empty()) return std::nullopt;
  return Finding{there ? "ok" : "warning", "nccl", choice->sentence};
}

// Each pair of GPUs once, from the one of the lower number.
Json test_pairs(const DoctorOptions& options, const std::vector<kernels::GpuInfo>& gpus,
                const std::vector<kernels::GpuLimits>& limits) {
  const auto title = [&](size_t i) { return "cuda:" + std::to_string(gpus[i].ordinal); };
  Json pairs = Json::array();
  for (size_t to = 1; to < gpus.size(); ++to) {
    for (size_t from = 0; from < to; ++from) {
      Json link{{"from", title(from)}, {"to", title(to)}};
      link.update(test_pair(title(from), title(to), options.links));
      link["host_copies_bytes_per_second"] =
          std::min(limits[from].to_host_bytes_per_second, limits[to].to_device_bytes_per_second);
      pairs.push_back(std::move(link));
    }
  }
  return pairs;
}

void print_pairs(const Json& pairs) {
  if (!pairs.empty()) std::printf("\nhand-offs between GPUs\n");
  for (const Json& link : pairs) {
    std::printf("  %s to %s  %s (a copy through the host: at most %.1f GB/s)\n",
                link.value("from", "").c_str(), link.value("to", "").c_str(),
                link_text(link).c_str(), link.value("host_copies_bytes_per_second", 0.0) / 1e9);
  }
}

Json gpu_json(const kernels::GpuInfo& gpu, const kernels::GpuLimits& limits) {
  Json read = Json::array();
  for (const auto& point : limits.read) {
    read.push_back(
        {{"working_set", point.working_set}, {"bytes_per_second", point.bytes_per_second}});
  }
  return {{"device", "cuda:" + std::to_string(gpu.ordinal)},
          {"name", gpu.name},
          {"id", gpu.id},
          {"memory", gpu.memory},
          {"capability", gpu.capability},
          {"limits",
           {{"read", read},
            {"bf16_flops_per_second", limits.bf16_flops_per_second},
            {"to_device_bytes_per_second", limits.to_device_bytes_per_second},
            {"to_host_bytes_per_second", limits.to_host_bytes_per_second},
            {"launch_seconds", limits.launch_seconds},
            {"graph_seconds", limits.graph_seconds}}}};
}

void print_gpu(const kernels::GpuInfo& gpu, const kernels::GpuLimits& limits) {
  std::printf("\ncuda:%d %s, sm_%d, %s\n", gpu.ordinal, gpu.name.c_str(), gpu.capability,
              human_bytes(static_cast<double>(gpu.memory)).c_str());
  for (const auto& point : limits.read) {
    std::printf("  read %8s       %7.1f GB/s\n",
                human_bytes(static_cast<double>(point.working_set)).c_str(),
                point.bytes_per_second / 1e9);
  }
  std::printf("  bf16 products       %7.1f TFLOP/s\n", limits.bf16_flops_per_second / 1e12);
  std::printf("  from the host       %7.1f GB/s\n", limits.to_device_bytes_per_second / 1e9);
  std::printf("  to the host         %7.1f GB/s\n", limits.to_host_bytes_per_second / 1e9);
  std::printf("  a launch            %7.2f us\n", limits.launch_seconds * 1e6);
  std::printf("  a launch in a graph %7.2f us\n", limits.graph_seconds * 1e6);
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
  const LinkOptions& links = options.links;
  if (!links.answer.empty() || !links.peer.empty()) {
    if (!links.answer.empty() && !links.peer.empty())
      return fail_usage("--answer and --peer are two ends: give one");
    if (links.mib == 0) return fail_usage("--link-mib 0 leaves nothing to test");
    return links.peer.empty() ? answer_links(links) : test_peer(links, options.json);
  }
  const std::string folder = state_folder(options.state_dir);
  std::string no_gpu;
  const std::vector<kernels::GpuInfo> gpus = kernels::cuda_gpus(&no_gpu);
  std::vector<Finding> findings{check_processor(), check_memory(), check_huge_pages(),
                                check_state(folder), check_gpu(gpus, no_gpu)};
  bool nccl = false;
  if (!gpus.empty())
    if (auto found = check_nccl(options.links.transport, nccl)) findings.push_back(*found);
  const auto path = kernels::best_cpu_path();
  const int threads = usable_threads(options.threads);
  if (options.measure) forget_limits(folder);
  ProgressBar bar("measuring this machine", false);
  const MeasurePlan& plan = options.measure ? kPatientMeasure : kQuickMeasure;
  size_t measured = 0;
  const auto progress = [&](double share) {
    bar.show((static_cast<double>(measured) + share) / static_cast<double>(1 + gpus.size()));
  };
  const MachineLimits limits = machine_limits(folder, path, threads, plan, progress);
  std::vector<kernels::GpuLimits> gpus_limits;
  for (const kernels::GpuInfo& gpu : gpus) {
    ++measured;
    gpus_limits.push_back(gpu_limits(folder, gpu, plan, progress));
  }
  bar.finish();
  Json pairs = Json::array();
  if (nccl && options.links.mib > 0) pairs = test_pairs(options, gpus, gpus_limits);
  bool bad = false;
  Json list = Json::array();
  for (const auto& f : findings) {
    const std::string level = f.level;
    bad = bad || level == "failure" || (options.strict && level == "warning");
    list.push_back({{"level", level}, {"what", f.what}, {"text", f.text}});
    if (!options.json) std::printf("%-8s %-13s %s\n", f.level, f.what.c_str(), f.text.c_str());
  }
  Json gpu_list = Json::array();
  for (size_t i = 0; i < gpus.size(); ++i) gpu_list.push_back(gpu_json(gpus[i], gpus_limits[i]));
  if (options.json) {
    print_json({{"version", HEADRACE_VERSION},
                {"ok", !bad},
                {"cpu", processor_name()},
                {"findings", list},
                {"limits", limits_json(path, threads, limits)},
                {"gpus", gpu_list},
                {"pairs", pairs}});
  } else {
    std::printf("%-8s %-13s %s\n", "", "name", processor_name().c_str());
    print_limits(path, threads, limits);
    for (size_t i = 0; i < gpus.size(); ++i) print_gpu(gpus[i], gpus_limits[i]);
    print_pairs(pairs);
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
  options->links.add_to(*command);
  command->callback([options, &action] { action = [options] { return doctor(*options); }; });
}

}  // namespace headrace::cli
