#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::cli {

// What a GPU can do. Rates per second; bytes decimal as on data sheets.
struct PlanGpu {
  std::string_view name;  // "h200"
  double memory = 0;      // bytes
  double cache = 0;       // bytes of the L2
  double read = 0;        // bytes, data sheet
  double flops = 0;       // bf16 tensor cores without sparsity, data sheet
  double link = 0;        // bytes over NVLink, one direction
  double read_seen = 0;   // measured; 0: nobody has
  double flops_seen = 0;
};

inline constexpr std::string_view kPlanGpus[] = {"a100", "h100", "h200", "b200"};
std::optional<PlanGpu> plan_gpu(std::string_view name);

// The share of the data sheet's figures that was measured on an H200 (4.3 of 4.8 TB/s, 790 of 989
// TFLOP/s): taken for those that were not measured.
inline constexpr double kReadShareSeen = 4.3 / 4.8;
inline constexpr double kFlopsShareSeen = 790.0 / 989.0;

// The machine that a plan is made for, and what is assumed where nothing was measured.
struct PlanMachine {
  double read = 0;          // bytes a second
  double flops = 0;         // a second
  double memory = 0;        // bytes
  double cache = 0;         // bytes
  double nvlink = 0;        // bytes a second
  double share = 0.8;       // of its limit that an operation, or a link, gets in a prediction
  double gap = 1.3e-6;      // seconds a launch; Hazy Research's figure inside a graph, on an H100
  double reserve = 2e9;     // bytes left to the driver, graphs and the library
  bool read_given = false;  // by the caller, else of the table
  bool flops_given = false;
  bool measured = false;  // the table's figures
};
PlanMachine plan_machine(const PlanGpu& gpu, std::optional<double> read,
                         std::optional<double> flops);

}  // namespace headrace::cli
