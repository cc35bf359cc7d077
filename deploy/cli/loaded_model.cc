#include "deploy/cli/loaded_model.h"

#include <unistd.h>

#include <algorithm>

#include "deploy/cli/kv_room.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/output.h"
#include "kernels/cuda_device.h"
#include "protocol/codec.h"
#include "protocol/slowdown.h"
#include "worker/correction.h"
#include "worker/model_file.h"

namespace headrace::cli {

namespace {

constexpr uint64_t kBlockBytesMin = uint64_t{64} << 20;  // small contexts get at least that much
constexpr uint64_t kBlocksMax = 65'536;
constexpr uint64_t kLogitRows = 64;                    // as many have logits at once
constexpr uint64_t kGpuScratch = uint64_t{256} << 20;  // attention's, sampling's, pinned copies
// Shares of the bar: hashing the file, measuring the machine, packing the weights.
constexpr double kHashed = 0.1;
constexpr double kMeasured = 0.4;

}  // namespace

uint32_t choose_blocks(const ModelCard& card, int contexts, uint64_t memory) {
  const uint64_t one = (card.context + card.block_tokens - 1) / card.block_tokens;
  const uint64_t wanted = std::max(one * static_cast<uint64_t>(contexts),
                                   kBlockBytesMin / std::max<uint64_t>(1, card.block_bytes));
  const uint64_t affordable = memory / 4 / std::max<uint64_t>(1, card.block_bytes);
  const uint64_t blocks = std::max(one, std::min(wanted, affordable));
  return static_cast<uint32_t>(std::min(blocks, std::max(one, kBlocksMax)));
}

uint32_t choose_gpu_blocks(const ModelCard& card, uint32_t rows, uint64_t free) {
  constexpr uint64_t kFloat = 4;
  const uint64_t wide = uint64_t{card.dim} * 3 + uint64_t{card.ffn} * 3 +
                        uint64_t{card.head_dim} * (2 * card.heads + 2 * card.kv_heads);
  const uint64_t taken = card.cost.weight_bytes + rows * wide * kFloat +
                         kLogitRows * card.vocab * kFloat + kGpuScratch;
  const KvRoom kv{.block_bytes = card.block_bytes,
                  .block_tokens = card.block_tokens,
                  .context = card.context,
                  .rotated = card.head_dim};  // at the most
  const uint64_t blocks = kv.blocks(free > taken ? free - taken : 0);
  return static_cast<uint32_t>(std::min<uint64_t>(blocks, kBlocksMax));
}

uint64_t share_of(uint64_t memory, double share) {
  const auto mine = static_cast<uint64_t>(static_cast<double>(memory) * share);
  return mine > kernels::kCudaReserve ? mine - kernels::kCudaReserve : 0;
}

Status check_blocks(const ModelCard& card, uint32_t blocks, uint64_t memory) {
  const uint64_t bytes = uint64_t{blocks} * card.block_bytes;
  if (bytes <= memory) return {};
  return error(Errc::kOverloaded, "--kv-blocks " + std::to_string(blocks) + " needs " +
                                      human_bytes(static_cast<double>(bytes)) + ", " +
                                      human_bytes(static_cast<double>(memory)) + " are available");
}

Status check_pinning(const EngineOptions& options) {
  if (!options.pin_threads) return {};
  if (!cpu_path_of(options.device))
    return error(Errc::kInvalid,
                 "--pin-threads is for processors, and device " + options.device + " is none");
  const int usable = usable_threads(0);
  if (options.threads <= usable) return {};
  return error(Errc::kInvalid, "--pin-threads: " + std::to_string(options.threads) +
                                   " threads, and this process may use " + std::to_string(usable) +
                                   " processors");
}

worker::WorkerOptions LoadedModel::worker_options(Role role, std::string name) const {
  worker::WorkerOptions options;
  options.role = role;
  options.name = std::move(name);
  options.device = device;
  options.pid = static_cast<uint64_t>(getpid());
  options.limits = limits;
  options.token_budget = std::min(options.token_budget, engine->rows_max());
  options.handoff.silence *= kSlowdown;
  options.handoff.verdict *= kSlowdown;
  // Nothing was measured of the reference device: it is slow, so its steps are small.
  if (limits.read.empty())
    options.token_budget = std::min(options.token_budget, worker::CorrectionLearner::kPacedMin);
  return options;
}

Result<LoadedModel> load_model(const std::string& path, const EngineOptions& options, int contexts,
                               bool machine_progress, const std::function<void(double)>& on_share) {
  ProgressBar bar("loading " + path, machine_progress);
  const auto part = [&bar, &on_share](double from, double to) {
    return [&bar, &on_share, from, to](double share) {
      bar.show(from + (to - from) * share);
      if (on_share) on_share(from + (to - from) * share);
    };
  };
  LoadedModel loaded;
  auto file = worker::ModelFile::open(path, part(0, kHashed));
  if (!file) return file.error();
  loaded.file = std::move(*file);
  if (options.gpu_share < 1 && !gpu_of(options.device))
    return error(Errc::kInvalid,
                 "--gpu-share is for GPUs, and device " + options.device + " is none");
  if (Status s = check_pinning(options); !s.ok()) return s;

  auto device =
      make_device(options.device, options.threads, options.kv_type, options.prefill_library);
  if (!device) return device.error();
  loaded.device = (*device)->name();
  if (options.prefill_library) say(kPrefillLibrary);
  if (std::string why;
      options.device == "auto" && kernels::cuda_is_built() && kernels::cuda_devices(&why) == 0)
    say("no GPU is used: " + why);
  loaded.limits = device_limits(state_folder(options.state_dir), options.device, options.threads,
                                part(kHashed, kMeasured));
  const double begun = loaded.limits.read.empty() ? kHashed : kMeasured;

  const ModelCard card = loaded.file->card(worker::CardOptions::of(**device, options.block_tokens));
  worker::EngineOptions engine;
  engine.block_tokens = options.block_tokens;
  // Weights have the same size on every device; a GPU's memory is theirs and the KV's.
  uint64_t memory = (*device)->memory_free().value_or(memory_available());
  if (const auto gpu = find_gpu(options.device))
    memory = std::min(memory, share_of(gpu->memory, options.gpu_share));
  if (Status room = check_blocks(card, options.kv_blocks, memory); !room.ok()) return room;
  engine.blocks = options.kv_blocks != 0     ? options.kv_blocks
                  : (*device)->memory_free() ? choose_gpu_blocks(card, engine.rows_max, memory)
                                             : choose_blocks(card, contexts, memory);
  if (engine.blocks == 0)
    return error(
        Errc::kOverloaded,
        options.device + ": " + human_bytes(static_cast<double>(memory)) +
            " are free for this worker, and none of it is left for KV beside weights and "
            "working memory: a larger --gpu-share, fewer workers on this GPU, or --kv-blocks");
  engine.load_threads = options.threads;
  engine.pin_threads = options.pin_threads;
  auto made = worker::ModelEngine::create(loaded.file, std::move(*device), engine, part(begun, 1));
  if (!made) return made.error();
  loaded.engine = std::move(*made);
  loaded.tokenizer = std::make_shared<const Bytes>(encode(loaded.file->tokenizer()));
  return loaded;
}

}  // namespace headrace::cli
