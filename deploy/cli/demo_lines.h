#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deploy/cli/demo_model.h"
#include "protocol/time_model.h"
#include "worker/engine_bench.h"

namespace headrace::cli {

// What `headrace demo wall` shows, and how long it may take.
struct DemoOptions {
  std::string device = "cpu";  // a CPU path
  int threads = 0;             // 0: all that this process may use
  double seconds = 100;        // for all, about
  bool small = false;          // a tiny shape: to see that it works, in seconds
  bool json = false;
};

// One measured line. Bytes, operations and seconds are those of one step, or of one prompt.
struct DemoRow {
  std::string weights;  // "w4"
  uint32_t layers = 0;
  uint32_t batch = 1;
  uint32_t prompt = 0;   // prefill: its tokens; else 0
  uint32_t context = 0;  // decode: tokens of a sequence in the median step
  uint32_t runs = 0;
  double seconds = 0, low = 0, high = 0;  // median, and the tenth part on each side
  double predicted = 0;  // by protocol/time_model.h from this machine's limits: none corrected
  kernels::Cost cost;
  uint64_t looked_up = 0;    // of the weight bytes: rows of the embedding, one a token
  double read_limit = 0;     // bytes a second, measured beside the runs
  double memory_share = 0;   // bytes / seconds / read limit
  double compute_share = 0;  // operations / seconds / peaks of their kinds

  uint64_t weight_bytes() const { return cost.weight_bytes - looked_up; }  // read by every step
  double flops_per_byte() const;
  double tokens_per_second() const { return (prompt > 0 ? prompt : batch) / seconds; }
  const char* wall() const { return memory_share >= compute_share ? "memory" : "compute"; }
};

// The lines that one engine of made-up weights is measured for. Their read limit is one: the best
// that was seen before any of their runs.
class DemoLines {
 public:
  // `limits`: the peaks of arithmetic; what memory gives is measured here.
  DemoLines(const DemoOptions& options, const DemoShape& shape, const MachineLimits& limits,
            worker::ModelEngine& engine);

  // A prompt, halved until a short trial says that it takes no more than a line's part of the
  // seconds.
  DemoRow prefill(uint32_t prompt);
  // Steps behind `context` tokens of made-up KV; needs demo_blocks() blocks.
  DemoRow decode(uint32_t batch, uint32_t context);
  // Sets beside each line, once, what this machine's limits say of it. After all were measured.
  void judge(std::vector<DemoRow>& rows);

 private:
  double budget() const;
  DemoRow begin() const;
  void look(uint64_t tokens);
  void measure(DemoRow& row, uint32_t most, uint32_t least,
               const std::function<worker::BenchRun()>& one);

  const DemoOptions& o_;
  const DemoShape shape_;
  const kernels::CpuPath path_;
  worker::ModelEngine& engine_;
  TimeModel model_;
  double read_ = 0;  // bytes a second
};

// KV blocks that decode() wants.
uint32_t demo_blocks(uint32_t batch, uint32_t context);

}  // namespace headrace::cli
