#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "worker/engine.h"
#include "worker/model.h"
#include "worker/model_file.h"

namespace headrace::worker {

constexpr int kDeviceLostExit = 70;  // EX_SOFTWARE of sysexits.h

struct EngineOptions {
  uint32_t block_tokens = 32;  // 16, 32 or 64
  uint32_t blocks = 0;         // KV blocks; at least one
  uint32_t rows_max = 512;     // of a step
  int load_threads = 0;        // <= 0: all that the process may use
  bool pin_threads = false;    // if the device can: see Device::pin_threads
  bool keep_logits = false;    // for last_logits()
  // What becomes of the process when the device fails for good; told why. Null: one line on
  // stderr, then the end, kDeviceLostExit. If it returns, steps sample nothing but kNumeric.
  std::function<void(const std::string& why)> device_lost{};
};

// The Engine of a real model: one thread of its own executes steps on the device, whose own threads
// share the work of each operation.
class ModelEngine final : public Engine {
 public:
  // Loads the weights. Fails with what is wrong with the file or the options, or with kOverloaded
  // and the bytes wanted where memory is short. `progress` gets 0..1.
  static Result<std::unique_ptr<ModelEngine>> create(
      std::shared_ptr<const ModelFile> file, std::unique_ptr<kernels::Device> device,
      const EngineOptions& options, const std::function<void(double)>& progress = {});
  // Waits for the step in flight, if any, whose `done` is still called; a prepared one is dropped.
  ~ModelEngine() override;

  const ModelCard& card() const override { return card_; }
  uint32_t blocks() const override { return options_.blocks; }
  uint32_t rows_max() const override { return options_.rows_max; }
  void run(Step step, std::function<void(StepDone)> done) override;
  bool prepare(Step next, std::function<void(StepDone)> done) override;
  bool withdraw() override;
  std::byte* host_block(BlockId id) override;
  kernels::BlockCopies* copies() override { return copies_.get(); }
  void lost(const std::string& why) override;
  std::span<const std::byte> read_block(BlockId id, size_t offset, size_t bytes) override;

  const ModelFile& file() const { return *file_; }
  const kernels::Device& device() const { return *device_; }
  // Logits of the last step with keep_logits, by sequence; empty for those that did not sample.
  // Read it after `done` and before the next run; inside `done` where a step may be prepared.
  const std::vector<std::vector<float>>& last_logits() const { return logits_; }

 private:
  static Result<std::unique_ptr<ModelEngine>> create_on_device(
      std::shared_ptr<const ModelFile> file, std::unique_ptr<kernels::Device> device,
      const EngineOptions& options, const std::function<void(double)>& progress);
  ModelEngine(std::shared_ptr<const ModelFile> file, std::unique_ptr<kernels::Device> device,
              const EngineOptions& options, Weights weights);
  struct Job {
    Step step;
    std::function<void(StepDone)> done;
  };
  void check(const Step& step) const;
  void loop();
  void end_step(Job job, StepDone result);
  StepDone execute(const Step& step);
  StepDone execute_on_device(const Step& step);
  void zero_new_blocks(const Step& step);
  std::byte* memory_of(BlockId id) const;

  std::shared_ptr<const ModelFile> file_;
  std::unique_ptr<kernels::Device> device_;
  const EngineOptions options_;
  const ModelCard card_;
  kernels::Buffer memory_;  // of the blocks
  // What was read last, where the host cannot see the device's memory.
  std::vector<std::byte> copy_;
  kernels::KvPool pool_;
  std::unique_ptr<kernels::BlockCopies> copies_;  // where the host cannot see the blocks
  Model model_;
  std::vector<std::vector<float>> logits_;

  // Hand-over to the thread.
  std::mutex mutex_;
  std::condition_variable wake_;
  Job job_;
  bool busy_ = false;        // job_ waits or runs
  std::optional<Job> next_;  // prepared
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace headrace::worker
