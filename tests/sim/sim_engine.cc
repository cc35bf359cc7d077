#include "tests/sim/sim_engine.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/check.h"
#include "protocol/random.h"
#include "tests/sim/sim_copies.h"

namespace headrace::sim {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull + b + 0xD1B54A32D192ED03ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

uint64_t link_of(uint64_t before, Token token, uint32_t position) {
  return mix(before, (uint64_t{position} << 32) | static_cast<uint32_t>(token));
}

Token choose_from(uint64_t all, const Sampling& sampling, uint32_t index, uint32_t vocab,
                  uint64_t salt) {
  return static_cast<Token>(mix(mix(all ^ salt, sampling.seed), index) % vocab);
}

}  // namespace

struct SimEngine::Slot {
  uint64_t chain = 0;
  Token token = 0;
  uint32_t place = 0;  // position + 1; 0: never written
};

Bytes sim_tokenizer() { return Bytes(100, std::byte{7}); }

ModelCard sim_card(const SimEngineOptions& options) {
  ModelCard card;
  card.name = "hash";
  card.architecture = "sim";
  card.weights = {1, options.vocab};
  const Bytes tokenizer = sim_tokenizer();
  const XXH128_hash_t digest = XXH3_128bits(tokenizer.data(), tokenizer.size());
  card.tokenizer = {digest.high64, digest.low64};
  card.layers = 1;
  card.dim = 1;
  card.ffn = 1;
  card.heads = 1;
  card.kv_heads = 1;
  card.head_dim = 1;
  card.vocab = options.vocab;
  card.context = options.context;
  card.block_tokens = options.block_tokens;
  card.block_bytes = uint64_t{16} * options.block_tokens;
  card.kv_layout = "sim slot{chain,token,place}";
  card.numerics = "sim";
  card.cost.kv_token_bytes = 16;
  return card;
}

SimOracle::SimOracle(const SimEngineOptions& options, std::span<const Token> tokens)
    : vocab_(options.vocab) {
  for (const Token t : tokens) push(t);
}

void SimOracle::push(Token token) {
  chain_ = link_of(chain_, token, length_++);
  all_ = mix(all_, chain_);
}

Token SimOracle::choose(const Sampling& sampling, uint32_t index, uint64_t salt) const {
  return choose_from(all_, sampling, index, vocab_, salt);
}

Logprobs sim_logprobs(Token token, uint32_t count) {
  Logprobs out;
  out.chosen = -static_cast<float>(token) / 8;
  for (uint32_t i = 0; i < count; ++i)
    out.top.push_back({token + static_cast<Token>(i), out.chosen - static_cast<float>(i)});
  return out;
}

std::vector<Token> sim_answer(const SimEngineOptions& options, std::vector<Token> prompt,
                              uint32_t max_tokens, const Sampling& sampling,
                              const std::vector<Token>& end_tokens, Finish* finish) {
  SimOracle oracle(options, prompt);
  std::vector<Token> answer;
  Finish why = Finish::kLength;
  while (answer.size() < max_tokens && prompt.size() + answer.size() < options.context) {
    const Token token = oracle.choose(sampling, static_cast<uint32_t>(answer.size()));
    if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) {
      why = Finish::kStop;
      break;
    }
    answer.push_back(token);
    oracle.push(token);
  }
  if (finish != nullptr) *finish = why;
  return answer;
}

SimEngine::SimEngine(std::shared_ptr<Strand> strand, const SimEngineOptions& options)
    : strand_(std::move(strand)),
      options_(options),
      card_(sim_card(options)),
      memory_(options.blocks * card_.block_bytes) {
  static_assert(sizeof(Slot) == 16);
  SeededRandom noise(options.blocks);  // an engine's memory begins with anything
  for (size_t i = 0; i < memory_.size(); i += sizeof(uint64_t)) {
    const uint64_t word = noise.next();
    std::memcpy(memory_.data() + i, &word, sizeof word);
  }
  if (options.staged) copies_ = std::make_unique<SimCopies>(*strand_, memory_, card_.block_bytes);
}

SimEngine::~SimEngine() = default;

void SimEngine::run(worker::Step step, std::function<void(worker::StepDone)> done) {
  begin({std::move(step), std::move(done)});
}

bool SimEngine::prepare(worker::Step next, std::function<void(worker::StepDone)> done) {
  if (in_use_.empty()) return false;
  CHECK(!next_);
  next_ = Job{std::move(next), std::move(done)};
  return true;
}

bool SimEngine::withdraw() {
  const bool waited = next_.has_value();
  next_.reset();
  return waited;
}

void SimEngine::begin(Job job) {
  const worker::Step& step = job.step;
  CHECK(in_use_.empty() && !step.sequences.empty() && step.rows() <= options_.rows_max);
  ++steps_;
  std::set<uint32_t> written;
  std::vector<uint32_t> read;
  for (const auto& s : step.sequences) {
    CHECK(!s.tokens.empty());
    const size_t first_written = s.position / options_.block_tokens;
    for (size_t i = 0; i < s.blocks.size(); ++i) {
      CHECK(s.blocks[i] < options_.blocks);
      in_use_.insert(s.blocks[i]);
      const bool writes = i >= first_written;
      if (writes && !written.insert(s.blocks[i]).second)
        violations_.push_back("one block is written by two sequences of a step");
      if (!writes) read.push_back(s.blocks[i]);
    }
  }
  for (const uint32_t b : read)
    if (written.contains(b)) violations_.push_back("a block is read and written in one step");
  const Duration takes = options_.step_base + options_.step_row * step.rows();
  const auto slow = static_cast<int64_t>(static_cast<double>(takes.count()) * slow_);
  timer_ = strand_->after(Duration(slow), [this, j = std::move(job)] { finish(j); });
}

bool SimEngine::holds(std::span<const BlockRef> blocks, std::span<const Token> tokens) const {
  if (blocks.size() * options_.block_tokens < tokens.size()) return false;
  uint64_t chain = 0;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    chain = link_of(chain, tokens[i], i);
    const uint64_t at = raw(blocks[i / options_.block_tokens].block) * card_.block_bytes +
                        (i % options_.block_tokens) * sizeof(Slot);
    const auto& s = *reinterpret_cast<const Slot*>(memory_.data() + at);
    if (s.place != i + 1 || s.token != tokens[i] || s.chain != chain) return false;
  }
  return true;
}

std::span<const std::byte> SimEngine::read_block(BlockId id, size_t offset, size_t bytes) {
  return std::span(memory_).subspan(raw(id) * card_.block_bytes + offset, bytes);
}

std::byte* SimEngine::host_block(BlockId id) {
  return options_.staged ? nullptr : memory_.data() + raw(id) * card_.block_bytes;
}

kernels::BlockCopies* SimEngine::copies() { return copies_.get(); }

void SimEngine::lost(const std::string& why) { violations_.push_back("lost: " + why); }

SimEngine::Slot& SimEngine::slot(const worker::StepSequence& s, uint32_t position) {
  const uint32_t index = position / options_.block_tokens;
  CHECK(index < s.blocks.size());
  std::byte* at = memory_.data() + s.blocks[index] * card_.block_bytes +
                  (position % options_.block_tokens) * sizeof(Slot);
  return *reinterpret_cast<Slot*>(at);
}

Token SimEngine::execute(const worker::StepSequence& s) {
  uint64_t before = 0;
  uint64_t all = 0;
  for (uint32_t i = 0; i < s.position; ++i) {
    const Slot& at = slot(s, i);
    if (at.place != i + 1 || at.chain != link_of(before, at.token, i)) {
      violations_.push_back("slot " + std::to_string(i) + " of block " +
                            std::to_string(s.blocks[i / options_.block_tokens]) +
                            " does not continue its sequence");
      return worker::StepDone::kNumeric;
    }
    before = at.chain;
    all = mix(all, before);
  }
  for (uint32_t i = 0; i < s.tokens.size(); ++i) {
    const uint32_t position = s.position + i;
    if (position % options_.block_tokens == 0) {
      std::memset(static_cast<void*>(&slot(s, position)), 0, card_.block_bytes);
    }
    Slot& at = slot(s, position);
    if (at.place != 0) violations_.push_back("slot " + std::to_string(position) + " was not zero");
    before = link_of(before, s.tokens[i], position);
    all = mix(all, before);
    at = {before, s.tokens[i], position + 1};
  }
  return s.sample ? choose_from(all, s.sampling, s.index, options_.vocab, salt_) : -1;
}

void SimEngine::finish(const Job& job) {
  const worker::Step& step = job.step;
  worker::StepDone result;
  for (const auto& s : step.sequences) {
    const Token token = execute(s);
    result.sampled.push_back(s.sample && poison_ ? worker::StepDone::kNumeric : token);
    if (s.sample && s.sampling.logprobs > 0) {
      result.logprobs.resize(step.sequences.size());
      result.logprobs[result.sampled.size() - 1] = sim_logprobs(token, s.sampling.logprobs);
    }
  }
  const Duration takes = options_.step_base + options_.step_row * step.rows();
  result.seconds = std::chrono::duration<double>(takes).count();
  in_use_.clear();
  std::optional<Job> next = std::exchange(next_, std::nullopt);
  result.followed = next && worker::follow(next->step, result.sampled);
  const bool followed = result.followed;
  job.done(std::move(result));
  if (followed) begin(std::move(*next));
}

}  // namespace headrace::sim
