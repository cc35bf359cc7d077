#include "deploy/cli/plan_gpu.h"

namespace headrace::cli {

namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kMega = 1e6;

// NVIDIA's data sheets of the A100 80GB SXM, H100 SXM, H200 SXM and HGX B200 (one GPU of eight):
// memory, bandwidth, dense bf16. NVLink of generation 3, 4 and 5, half of what is quoted for both
// directions. L2: architecture white papers; B200's is a figure of third parties.
constexpr PlanGpu kGpus[] = {
    {"a100", 80 * kGiga, 40 * kMega, 2.039 * kTera, 312 * kTera, 300 * kGiga, 0, 0},
    {"h100", 80 * kGiga, 50 * kMega, 3.35 * kTera, 989 * kTera, 450 * kGiga, 0, 0},
    {"h200", 141 * kGiga, 50 * kMega, 4.8 * kTera, 989 * kTera, 450 * kGiga, 4.3 * kTera,
     790 * kTera},
    {"b200", 180 * kGiga, 126 * kMega, 8.0 * kTera, 2250 * kTera, 900 * kGiga, 0, 0},
};

}  // namespace

std::optional<PlanGpu> plan_gpu(std::string_view name) {
  for (const PlanGpu& gpu : kGpus)
    if (gpu.name == name) return gpu;
  return std::nullopt;
}

PlanMachine plan_machine(const PlanGpu& gpu, std::optional<double> read,
                         std::optional<double> flops) {
  PlanMachine m;
  m.measured = gpu.read_seen > 0;
  m.read_given = read.has_value();
  m.flops_given = flops.has_value();
  m.read = read.value_or(m.measured ? gpu.read_seen : gpu.read * kReadShareSeen);
  m.flops = flops.value_or(m.measured ? gpu.flops_seen : gpu.flops * kFlopsShareSeen);
  m.memory = gpu.memory;
  m.cache = gpu.cache;
  m.nvlink = gpu.link;
  return m;
}

}  // namespace headrace::cli
