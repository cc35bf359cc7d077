#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "kernels/cuda_device.h"
#include "tests/gpu/parts.h"
#include "worker/model_engine.h"

// Whole steps of a model through the engine, as a worker runs them: decode at batches and contexts,
// and chunks of a prompt. Times are the host's, from the step handed in until its tokens are there.

namespace headrace::gpu {
namespace {

using worker::EngineOptions;
using worker::ModelEngine;
using worker::ModelFile;
using worker::Step;
using worker::StepDone;
using worker::StepSequence;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBlockTokens = 32;
constexpr uint64_t kSpare = uint64_t{4} << 30;  // for activations, workspaces and the driver
constexpr int kWarmUps = 3;                     // a graph is recorded at the second step of a shape
constexpr size_t kSteps = 12;

struct Point {
  uint32_t batch;
  uint32_t context;  // tokens in front of the step's
  uint32_t tokens;   // of each sequence
  uint64_t blocks() const {
    return uint64_t{batch} * ((context + tokens + kBlockTokens - 1) / kBlockTokens);
  }
};

std::vector<Point> points(bool tiny) {
  if (tiny) return {{1, 32, 1}, {2, 50, 1}, {1, 0, 24}, {64, 4096, 1}};
  std::vector<Point> out;
  for (const uint32_t context : {512u, 2048u, 8192u, 32768u})
    for (const uint32_t batch : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u})
      out.push_back({batch, context - 2, 1});  // no block begins with a step's token
  for (const uint32_t context : {0u, 8192u}) out.push_back({1, context, 512});
  return out;
}

template <class T>
T value(Result<T> result) {
  if (!result) throw kernels::DeviceError(result.error().message);
  return std::move(*result);
}

// A model with as many blocks as the largest point wants, or as there is memory for.
std::unique_ptr<ModelEngine> make(int ordinal, const std::string& path, bool tiny) {
  const auto file = value(ModelFile::open(path));
  auto device = kernels::make_cuda_device({.ordinal = ordinal});
  EngineOptions options;
  options.block_tokens = kBlockTokens;
  options.rows_max = tiny ? 64 : 512;
  const auto& c = file->config();
  const kernels::KvLayout layout{kernels::KvType::kF16,
                                 static_cast<int32_t>(c.layers),
                                 static_cast<int32_t>(c.kv_heads),
                                 static_cast<int32_t>(c.head_dim),
                                 kBlockTokens,
                                 kernels::KvOrder::kRows};
  uint64_t wanted = 0;
  for (const Point& p : points(tiny)) wanted = std::max(wanted, p.blocks());
  if (tiny) wanted = 16;
  const uint64_t free = device->memory_free().value_or(0);
  const uint64_t taken = tiny ? 0 : std::filesystem::file_size(path) + kSpare;
  const uint64_t fit = free > taken ? (free - taken) / layout.block_bytes() : 0;
  if (fit == 0) throw kernels::DeviceError("the model does not fit");
  options.blocks = static_cast<uint32_t>(std::min(wanted, fit));
  options.device_lost = [](const std::string& why) {
    std::fprintf(stderr, "gpu_measure: %s\n", why.c_str());
  };
  return value(ModelEngine::create(file, std::move(device), options));
}

// KV that is not zero, so that attention moves and multiplies bits as it does in earnest.
void fill(ModelEngine& engine) {
  kernels::BlockCopies* const copies = engine.copies();
  if (copies == nullptr) throw kernels::DeviceError("a GPU's blocks are not copied");
  const uint32_t slot = kernels::kCopySlots;  // the way in
  const std::span<std::byte> host = copies->host(slot);
  uint64_t state = 1;
  for (size_t i = 0; i + 4 <= host.size(); i += 4) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t word = static_cast<uint32_t>(state >> 32) & 0xbfffbfff;
    std::memcpy(host.data() + i, &word, 4);
  }
  for (uint32_t first = 0; first < engine.blocks();) {
    std::vector<uint32_t> blocks;
    while (first < engine.blocks() && blocks.size() < copies->slot_blocks())
      blocks.push_back(first++);
    copies->begin(slot, blocks, true);
    while (!copies->poll(slot)) std::this_thread::yield();
  }
}

StepDone run(ModelEngine& engine, const Step& step) {
  std::promise<StepDone> done;
  engine.run(step, [&](StepDone d) { done.set_value(std::move(d)); });
  return done.get_future().get();
}

Step step_of(const Point& p, uint32_t vocab) {
  Step step;
  const auto each = static_cast<uint32_t>(p.blocks() / p.batch);
  for (uint32_t b = 0; b < p.batch; ++b) {
    StepSequence s;
    for (uint32_t i = 0; i < each; ++i) s.blocks.push_back(b * each + i);
    s.position = p.context;
    for (uint32_t t = 0; t < p.tokens; ++t)
      s.tokens.push_back(static_cast<Token>((b * 7919 + t * 31 + 5) % vocab));
    s.sample = true;
    step.sequences.push_back(std::move(s));
  }
  return step;
}

void measure(ModelEngine& engine, const Point& p, double each) {
  const Step step = step_of(p, engine.file().known_tokens());
  std::vector<double> seconds;
  kernels::Cost cost;
  const auto begun = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  for (int i = 0; i < kWarmUps || seconds.size() < kSteps || spent() < each; ++i) {
    const auto at = Clock::now();
    const StepDone done = run(engine, step);
    const double took = std::chrono::duration<double>(Clock::now() - at).count();
    if (done.sampled.at(0) < 0) throw kernels::DeviceError("a step's logits are no numbers");
    if (i < kWarmUps) continue;
    seconds.push_back(took);
    cost = {};
    for (const auto& account : done.accounts) cost += account.cost;
    if (spent() > 4 * each && seconds.size() >= 3) break;
  }
  const Times t = times_of(seconds);
  emit({{"batch", p.batch},
        {"context", p.context},
        {"tokens", p.tokens},
        {"seconds", t.median},
        {"least", t.least},
        {"p90", t.p90},
        {"samples", t.samples},
        {"tokens_per_second", p.batch * p.tokens / t.median},
        {"weight_bytes", cost.weight_bytes},
        {"kv_bytes", cost.kv_bytes},
        {"bytes", cost.bytes()},
        {"flops", cost.flops}});
}

}  // namespace

void measure_steps(int ordinal, bool tiny, const std::string& model, double each) {
  const auto begun = Clock::now();
  const auto engine = make(ordinal, model, tiny);
  emit({{"load_seconds", std::chrono::duration<double>(Clock::now() - begun).count()},
        {"blocks", engine->blocks()},
        {"block_tokens", kBlockTokens}});
  fill(*engine);
  for (const Point& p : points(tiny)) {
    if (p.blocks() > engine->blocks()) {
      emit({{"batch", p.batch},
            {"context", p.context},
            {"tokens", p.tokens},
            {"left_out", "its KV does not fit"}});
      continue;
    }
    measure(*engine, p, each);
  }
}

}  // namespace headrace::gpu
