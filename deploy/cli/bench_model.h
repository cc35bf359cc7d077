#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/cli/options.h"
#include "protocol/time_model.h"
#include "worker/engine_bench.h"

namespace headrace::cli {

// 0 where nothing was measured.
inline double per(double amount, double whole) { return whole > 0 ? amount / whole : 0; }

// What `headrace bench decode|prefill|step MODEL` measures.
struct ModelBenchOptions {
  enum class What { kDecode, kPrefill, kStep };
  What what = What::kDecode;
  std::string model;
  EngineOptions engine;
  std::vector<uint32_t> batches = {1};    // decode, step
  std::vector<uint32_t> prompts = {128};  // decode: the first is prefilled; prefill: each
  uint32_t context = 0;  // decode, step: tokens of KV already there, made up, instead of a prompt
  uint32_t tokens = 32;  // decode steps of a batch
  uint32_t rounds = 3;   // prompts of a length, one after the other
  bool json = false;
};

// One line of the result. Bytes, operations and seconds are of one step (decode, step) or of one
// prompt (prefill): medians, and the tenth part on each side.
struct ModelBenchRow {
  uint32_t batch = 1;
  uint32_t prompt = 0;
  uint32_t context = 0;  // tokens before the first step that counts
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double seconds = 0, low = 0, high = 0;
  kernels::Cost cost;
  double read_limit = 0;                     // bytes a second at the step's working set, same run
  double memory_share = 0;                   // bytes / seconds / read limit: the saturation
  double compute_share = 0;                  // operations / seconds / peaks of their kinds
  double outside_share = 0;                  // of the seconds, between operations
  std::vector<kernels::OpAccount> accounts;  // of the median
  const char* wall() const { return memory_share >= compute_share ? "memory" : "compute"; }
};

struct ModelBenchReport {
  std::string model, device;
  MachineLimits limits;
  std::vector<ModelBenchRow> rows;
};

// Fails where the model cannot be loaded, or has less context than what is asked for.
Result<ModelBenchReport> bench_model(const ModelBenchOptions& options);

std::string model_bench_json(const ModelBenchReport& report);
std::string model_bench_markdown(const ModelBenchReport& report, ModelBenchOptions::What what);

}  // namespace headrace::cli
