#include "worker/engine_bench.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {

kernels::Cost BenchRun::cost() const {
  kernels::Cost sum;
  for (const auto& a : accounts) sum += a.cost;
  return sum;
}

double BenchRun::inside() const {
  double sum = 0;
  for (const auto& a : accounts) sum += a.seconds;
  return sum;
}

BenchRun operator+(BenchRun a, const BenchRun& b) {
  a.seconds += b.seconds;
  for (const auto& account : b.accounts) {
    const auto same = std::find_if(a.accounts.begin(), a.accounts.end(), [&](const auto& o) {
      return std::string_view(o.op) == account.op;
    });
    if (same == a.accounts.end()) {
      a.accounts.push_back(account);
      continue;
    }
    same->cost += account.cost;
    same->seconds += account.seconds;
    same->runs += account.runs;
  }
  return a;
}

uint64_t EngineBench::blocks_for(const ModelCard& card, uint32_t batch, uint32_t tokens) {
  return uint64_t{batch} * ((tokens + card.block_tokens - 1) / card.block_tokens);
}

EngineBench::EngineBench(Engine& engine, uint32_t batch, uint32_t tokens)
    : engine_(engine), batch_(batch), tokens_(tokens) {
  CHECK(batch >= 1 && batch <= engine.rows_max());
  CHECK(tokens >= 1 && tokens <= engine.card().context);
  CHECK(blocks_for(engine.card(), batch, tokens) <= engine.blocks());
}

void EngineBench::fill(uint32_t tokens) {
  CHECK(tokens <= tokens_);
  position_ = tokens;
  const auto blocks = static_cast<uint32_t>(blocks_for(engine_.card(), batch_, tokens));
  uint32_t state = 2463534242;
  for (uint32_t b = 0; b < blocks; b++) {
    auto* const to = reinterpret_cast<uint16_t*>(engine_.host_block(BlockId{b}));
    if (to == nullptr) return;
    for (uint64_t i = 0; i < engine_.card().block_bytes / 2; i++) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      to[i] = static_cast<uint16_t>(0x3800 | (state & 0x83ff));  // f16 of magnitude 0.5 to 1
    }
  }
}

StepSequence EngineBench::sequence(uint32_t index, uint32_t position, uint32_t tokens) const {
  StepSequence s;
  const uint32_t per = engine_.card().block_tokens, end = position + tokens;
  for (uint32_t b = 0; b * per < end; b++) s.blocks.push_back(b * batch_ + index);
  s.position = position;
  for (uint32_t i = 0; i < tokens; i++) {
    const uint32_t about = (index * 7919 + (position + i) * 104729) % (engine_.card().vocab / 2);
    s.tokens.push_back(static_cast<Token>(about));
  }
  return s;
}

BenchRun EngineBench::prefill(uint32_t tokens) {
  CHECK(tokens >= 1 && position_ + tokens <= tokens_);
  BenchRun all;
  for (uint32_t i = 0; i < batch_; i++) {
    for (uint32_t at = 0; at < tokens;) {
      const uint32_t n = std::min(engine_.rows_max(), tokens - at);
      Step step;
      step.sequences.push_back(sequence(i, position_ + at, n));
      at += n;
      step.sequences.back().sample = at == tokens;
      all = std::move(all) + run(std::move(step));
    }
  }
  position_ += tokens;
  return all;
}

BenchRun EngineBench::decode() {
  CHECK(position_ < tokens_);
  Step step;
  for (uint32_t i = 0; i < batch_; i++) {
    step.sequences.push_back(sequence(i, position_, 1));
    step.sequences.back().sample = true;
  }
  position_++;
  return run(std::move(step));
}

BenchRun EngineBench::run(Step step) {
  std::promise<StepDone> promise;
  auto future = promise.get_future();
  const auto start = std::chrono::steady_clock::now();
  engine_.run(std::move(step), [&](StepDone done) { promise.set_value(std::move(done)); });
  StepDone done = future.get();
  BenchRun result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.accounts = std::move(done.accounts);
  return result;
}

}  // namespace headrace::worker
