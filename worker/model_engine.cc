#include "worker/model_engine.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "protocol/check.h"
#include "protocol/limits.h"

namespace headrace::worker {
namespace {

Status no_memory(const ModelFile& file, uint64_t bytes, const char* what) {
  return error(Errc::kOverloaded, file.gguf().file().path() + ": no memory for " +
                                      std::to_string(bytes >> 20) + " MiB of " + what);
}

}  // namespace

Result<std::unique_ptr<ModelEngine>> ModelEngine::create(
    std::shared_ptr<const ModelFile> file, std::unique_ptr<kernels::Device> device,
    const EngineOptions& options, const std::function<void(double)>& progress) {
  const uint32_t t = options.block_tokens;
  if (t != 16 && t != 32 && t != 64)
    return error(Errc::kInvalid, "KV blocks hold 16, 32 or 64 tokens, not " + std::to_string(t));
  if (options.blocks == 0 || options.rows_max == 0)
    return error(Errc::kInvalid, "an engine needs at least one KV block and one row");
  try {
    return create_on_device(std::move(file), std::move(device), options, progress);
  } catch (const kernels::DeviceError& why) {
    return error(Errc::kInternal, why.what());
  }
}

Result<std::unique_ptr<ModelEngine>> ModelEngine::create_on_device(
    std::shared_ptr<const ModelFile> file, std::unique_ptr<kernels::Device> device,
    const EngineOptions& options, const std::function<void(double)>& progress) {
  const uint32_t t = options.block_tokens;
  Result<Weights> weights = load_weights(*file, options.load_threads, progress, device.get());
  if (!weights) return std::move(weights).error();
  const uint64_t kv =
      file->kv_layout(CardOptions::of(*device, t)).block_bytes() * uint64_t{options.blocks};
  try {
    return std::unique_ptr<ModelEngine>(
        new ModelEngine(file, std::move(device), options, std::move(*weights)));
  } catch (const std::bad_alloc&) {
    return no_memory(*file, kv, "KV blocks and activations");
  }
}

ModelEngine::ModelEngine(std::shared_ptr<const ModelFile> file,
                         std::unique_ptr<kernels::Device> device, const EngineOptions& options,
                         Weights weights)
    : file_(std::move(file)),
      device_(std::move(device)),
      options_(options),
      card_(file_->card(CardOptions::of(*device_, options.block_tokens))),
      memory_(device_->allocate(card_.block_bytes * options.blocks)),
      pool_{.layout = file_->kv_layout(CardOptions::of(*device_, options.block_tokens)),
            .base = memory_.data()},
      copies_(device_->block_copies(pool_, options.blocks)),
      model_(file_, std::move(weights), *device_, pool_,
             uint64_t{options.blocks} * options.block_tokens, options.rows_max),
      thread_([this] { loop(); }) {}

ModelEngine::~ModelEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::byte* ModelEngine::memory_of(BlockId id) const {
  CHECK(raw(id) < options_.blocks);
  return memory_.data() + raw(id) * card_.block_bytes;
}

std::span<const std::byte> ModelEngine::read_block(BlockId id, size_t offset, size_t bytes) {
  CHECK(offset <= card_.block_bytes && bytes <= card_.block_bytes - offset);
  const std::byte* const from = memory_of(id) + offset;
  if (device_->host_visible()) return {from, bytes};
  copy_.resize(bytes);
  try {
    device_->read(copy_, from);
  } catch (const kernels::DeviceError& why) {
    lost(why.what());
  }
  return copy_;
}

std::byte* ModelEngine::host_block(BlockId id) {
  return device_->host_visible() ? memory_of(id) : nullptr;
}

void ModelEngine::run(Step step, std::function<void(StepDone)> done) {
  check(step);
  for (const StepSequence& s : step.sequences) CHECK(!s.follows);
  {
    const std::lock_guard lock(mutex_);
    CHECK(!busy_ && !stop_);
    busy_ = true;
    job_ = {std::move(step), std::move(done)};
  }
  wake_.notify_one();
}

bool ModelEngine::prepare(Step next, std::function<void(StepDone)> done) {
  check(next);
  const std::lock_guard lock(mutex_);
  if (!busy_) return false;
  CHECK(!next_);
  next_ = Job{std::move(next), std::move(done)};
  return true;
}

bool ModelEngine::withdraw() {
  const std::lock_guard lock(mutex_);
  const bool waited = next_.has_value();
  next_.reset();
  return waited;
}

// A step is our own scheduler's work: what is wrong in it is our mistake.
void ModelEngine::check(const Step& step) const {
  CHECK(step.rows() <= options_.rows_max);
  for (const StepSequence& s : step.sequences) {
    CHECK(!s.tokens.empty() && (!s.follows || s.tokens.size() == 1));
    const uint64_t end = uint64_t{s.position} + s.tokens.size();
    CHECK(end <= card_.context);
    CHECK(s.blocks.size() * uint64_t{card_.block_tokens} >= end);
    for (const uint32_t b : s.blocks) CHECK(b < options_.blocks);
    for (const Token t : s.tokens) CHECK(t >= 0 && static_cast<uint32_t>(t) < card_.vocab);
    int64_t last = -1;
    for (const kernels::LogitEdit& e : s.edits) {
      CHECK(e.id > last && e.id < int64_t{card_.vocab});
      last = e.id;
    }
    CHECK(s.sampling.logprobs <= limits::kLogprobs);
  }
}

void ModelEngine::loop() {
  if (options_.pin_threads) device_->pin_threads();  // this one is the device's caller
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return busy_ || stop_; });
      if (!busy_) return;
      job = std::move(job_);
    }
    StepDone result = execute(job.step);
    end_step(std::move(job), std::move(result));
  }
}

// The prepared step follows, or there is none; then `done` may run the next one at once.
void ModelEngine::end_step(Job job, StepDone result) {
  {
    const std::lock_guard lock(mutex_);
    result.followed = next_ && !stop_ && follow(next_->step, result.sampled);
    if (result.followed) job_ = std::move(*next_);
    busy_ = result.followed;
    next_.reset();
  }
  job.done(std::move(result));
}

void ModelEngine::lost(const std::string& why) {
  if (options_.device_lost) return options_.device_lost(why);
  std::fprintf(stderr, "headrace: %s; this worker ends\n", why.c_str());
  std::_Exit(kDeviceLostExit);
}

StepDone ModelEngine::execute(const Step& step) {
  try {
    return execute_on_device(step);
  } catch (const kernels::DeviceError& why) {
    lost(why.what());
  } catch (const std::bad_alloc&) {
    lost(device_->name() + ": no memory left for a step");
  }
  StepDone done;
  done.sampled.assign(step.sequences.size(), -1);
  for (size_t i = 0; i < step.sequences.size(); i++)
    if (step.sequences[i].sample) done.sampled[i] = StepDone::kNumeric;
  return done;
}

StepDone ModelEngine::execute_on_device(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  zero_new_blocks(step);
  LogitsSink sink;
  if (options_.keep_logits) {
    logits_.assign(step.sequences.size(), {});
    sink = [this](size_t sequence, std::span<const float> logits) {
      logits_[sequence].assign(logits.begin(), logits.end());
    };
  }
  StepDone done = model_.run(step, sink);
  done.accounts = device_->take_accounts();
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return done;
}

// Slots of a block beyond the tokens in it are zero: blocks compare and hash alike whoever used
// them before.
void ModelEngine::zero_new_blocks(const Step& step) {
  const uint32_t t = options_.block_tokens;
  std::vector<uint32_t> blocks;
  for (const StepSequence& s : step.sequences) {
    const uint64_t end = uint64_t{s.position} + s.tokens.size();
    for (uint64_t p = (uint64_t{s.position} + t - 1) / t * t; p < end; p += t)
      blocks.push_back(s.blocks[p / t]);
  }
  if (!blocks.empty()) device_->zero_blocks(pool_, blocks);
}

}  // namespace headrace::worker
