#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deploy/cli/demo_lines.h"
#include "deploy/cli/demo_model.h"
#include "deploy/cli/demo_serving.h"
#include "protocol/time_model.h"

namespace headrace::cli {

// Serving a mix one way: what the lengths say and what came of it.
struct DemoServingRow {
  std::string way;
  DemoOutcome predicted, measured;
};

struct DemoReport {
  std::string device;
  int threads = 0;
  DemoShape shape;
  MachineLimits limits;
  uint64_t kv_token_bytes = 0;
  std::vector<DemoRow> phases;    // prefill, decode behind the same prompt
  std::vector<DemoRow> formats;   // bf16, w8, w4
  std::vector<DemoRow> batches;   // 1, 8, 16
  std::vector<DemoRow> contexts;  // ascending
  // Seconds that one more token of context costs a step: KV bytes / read limit, and the line of
  // least squares through the rows.
  double slope_predicted = 0, slope = 0;
  DemoMix room_mix, batch_mix;
  DemoPolicy room, batch;              // what both ways share
  std::vector<DemoServingRow> rooms;   // contiguous, pages
  std::vector<DemoServingRow> orders;  // static, continuous
  double wall_seconds = 0;             // that the demo took
};

// Sections 5 and 6 alone: counted, not timed.
void serve_demos(DemoReport& report);

// All of it. kOverloaded where memory is short. `progress` gets 0..1.
Result<DemoReport> demo_wall(const DemoOptions& options,
                             const std::function<void(double)>& progress);

std::string demo_json(const DemoReport& report);
std::string demo_text(const DemoReport& report);

}  // namespace headrace::cli
