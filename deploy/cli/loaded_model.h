#pragma once

#include <functional>
#include <memory>
#include <string>

#include "deploy/cli/options.h"
#include "protocol/link.h"
#include "protocol/time_model.h"
#include "worker/model_engine.h"
#include "worker/options.h"

namespace headrace::cli {

// A model in memory with everything that a worker of it is made of.
struct LoadedModel {
  std::shared_ptr<const worker::ModelFile> file;
  std::unique_ptr<worker::ModelEngine> engine;
  std::shared_ptr<const Bytes> tokenizer;  // encoded
  MachineLimits limits;
  std::string device;  // for people

  const ModelCard& card() const { return engine->card(); }
  worker::WorkerOptions worker_options(Role role, std::string name) const;
};

// Opens, checks, measures the machine if that was never done, and loads; the bar shows how far it
// is. `contexts`: for how many full contexts there shall be KV blocks, unless the options say.
// Every error is one line.
Result<LoadedModel> load_model(const std::string& path, const EngineOptions& options, int contexts,
                               bool machine_progress,
                               const std::function<void(double)>& on_share = {});

// KV blocks for `contexts` full contexts, or more for models of a small one, but no more than a
// quarter of the memory that is available; always one full context.
uint32_t choose_blocks(const ModelCard& card, int contexts, uint64_t memory_available);
// Of a GPU, which is there for this alone: all that `free` bytes hold beside weights and the
// activations of `rows` rows. 0: nothing is left; no worker can live there.
uint32_t choose_gpu_blocks(const ModelCard& card, uint32_t rows, uint64_t free);
// What a part of a GPU's memory leaves for weights and KV: each process on it has a reserve.
uint64_t share_of(uint64_t memory, double share);
// kOverloaded, with both numbers, when so many blocks do not fit into the memory.
Status check_blocks(const ModelCard& card, uint32_t blocks, uint64_t memory_available);
// Whether --pin-threads, if asked for, can be done: on processors, one for each thread.
Status check_pinning(const EngineOptions& options);

}  // namespace headrace::cli
