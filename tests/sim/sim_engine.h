#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/link.h"
#include "protocol/strand.h"
#include "worker/engine.h"

namespace headrace::sim {

struct SimEngineOptions {
  uint32_t blocks = 64;
  uint32_t block_tokens = 16;
  uint32_t vocab = 997;
  uint32_t context = 512;
  uint32_t rows_max = 512;
  Duration step_base = 500us;
  Duration step_row = 20us;
  bool staged = false;  // as if the blocks were a GPU's: hand-offs go by way of staging slots
};

// What stands for the encoded TokenizerData; the card names its digest.
Bytes sim_tokenizer();
ModelCard sim_card(const SimEngineOptions& options);

// The answer that an undisturbed engine gives: what every test compares with.
std::vector<Token> sim_answer(const SimEngineOptions& options, std::vector<Token> prompt,
                              uint32_t max_tokens, const Sampling& sampling,
                              const std::vector<Token>& end_tokens, Finish* finish = nullptr);

// What it says of a chosen token to one who asks for `count` alternatives.
Logprobs sim_logprobs(Token token, uint32_t count);

// The same, token by token. Engines of another salt choose other tokens over the same KV, as
// workers that round differently would.
class SimOracle {
 public:
  explicit SimOracle(const SimEngineOptions& options, std::span<const Token> tokens = {});
  void push(Token token);
  Token choose(const Sampling& sampling, uint32_t index, uint64_t salt = 0) const;
  uint64_t chain() const { return chain_; }

 private:
  uint32_t vocab_;
  uint32_t length_ = 0;
  uint64_t chain_ = 0;
  uint64_t all_ = 0;
};

// An engine without a model, on virtual time. The KV of a token is a slot that holds its place, its
// id and a hash chained to the slot before; the token chosen is a hash of all slots. So a block
// that is wrong, missing, stale or half written changes what comes out. It is also seen: a slot
// that is not the next link of its chain is put down in `violations`. Blocks are read and written
// when the step ends, so one that is freed too early is caught.
class SimCopies;
class SimEngine final : public worker::Engine {
 public:
  SimEngine(std::shared_ptr<Strand> strand, const SimEngineOptions& options);
  ~SimEngine() override;

  const ModelCard& card() const override { return card_; }
  uint32_t blocks() const override { return options_.blocks; }
  uint32_t rows_max() const override { return options_.rows_max; }
  void run(worker::Step step, std::function<void(worker::StepDone)> done) override;
  bool prepare(worker::Step next, std::function<void(worker::StepDone)> done) override;
  bool withdraw() override;
  std::byte* host_block(BlockId id) override;
  kernels::BlockCopies* copies() override;
  void lost(const std::string& why) override;
  std::span<const std::byte> read_block(BlockId id, size_t offset, size_t bytes) override;

  const std::vector<std::string>& violations() const { return violations_; }
  // Blocks of the step in flight, for the test's own checks.
  const std::set<uint32_t>& in_use() const { return in_use_; }
  // Whether these blocks hold the KV of exactly these tokens.
  bool holds(std::span<const BlockRef> blocks, std::span<const Token> tokens) const;
  uint64_t steps() const { return steps_; }  // begun
  void set_salt(uint64_t salt) { salt_ = salt; }
  uint64_t salt() const { return salt_; }
  bool prepared() const { return next_.has_value(); }
  void slow_down(double factor) { slow_ = factor; }
  // The next sampled token of each step becomes kNumeric.
  void poison(bool on) { poison_ = on; }

 private:
  struct Slot;
  struct Job {
    worker::Step step;
    std::function<void(worker::StepDone)> done;
  };
  Slot& slot(const worker::StepSequence& s, uint32_t position);
  Token execute(const worker::StepSequence& s);
  void begin(Job job);
  void finish(const Job& job);

  std::shared_ptr<Strand> strand_;
  SimEngineOptions options_;
  ModelCard card_;
  std::vector<std::byte> memory_;
  std::unique_ptr<SimCopies> copies_;
  std::vector<std::string> violations_;
  std::set<uint32_t> in_use_;
  uint64_t salt_ = 0;
  uint64_t steps_ = 0;
  double slow_ = 1;
  bool poison_ = false;
  Timer timer_;
  std::optional<Job> next_;
};

}  // namespace headrace::sim
