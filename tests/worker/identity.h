#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/worker/model_support.h"

// Promise 1 in process: one request's tokens, logits and KV blocks, whatever runs beside it.
namespace headrace::worker {

struct Request {
  std::vector<Token> prompt;
  size_t answer = 0;  // tokens
  Sampling sampling;
};

// What a run gave for one request.
struct Trace {
  std::vector<Token> ids;
  std::vector<std::vector<float>> logits;      // of each chosen token
  std::vector<std::vector<std::byte>> blocks;  // in order of the sequence
  bool operator==(const Trace&) const = default;
};

// How a run is arranged.
struct Arrangement {
  uint32_t budget = 512;    // rows of a step: decode rows first, then chunks of prompts
  uint32_t order_seed = 0;  // of the blocks' places in the pool; 0: as they come
  size_t watched = 0;       // index of the request whose trace is wanted
};

// Runs all requests together in the way a worker does and returns the trace of the watched one.
class Schedule {
 public:
  Schedule(ModelEngine& engine, const std::vector<Request>& requests, Arrangement how)
      : engine_(engine), requests_(requests), how_(how) {
    std::vector<uint32_t> free(engine.blocks());
    for (uint32_t i = 0; i < free.size(); i++) free[i] = i;
    if (how.order_seed != 0) std::shuffle(free.begin(), free.end(), std::mt19937(how.order_seed));
    const uint32_t t = engine.card().block_tokens;
    for (const Request& r : requests) {
      State s;
      while (s.blocks.size() * t < r.prompt.size() + r.answer) {
        REQUIRE(!free.empty());
        s.blocks.push_back(free.back());
        free.pop_back();
      }
      s.left = r.prompt;
      states_.push_back(std::move(s));
    }
  }

  Trace run_all() {
    while (step()) continue;
    for (const uint32_t b : states_[how_.watched].blocks) {
      const auto bytes = engine_.read_block(BlockId{b}, 0, engine_.card().block_bytes);
      trace_.blocks.emplace_back(bytes.begin(), bytes.end());
    }
    return trace_;
  }

 private:
  struct State {
    std::vector<uint32_t> blocks;
    std::vector<Token> left;  // tokens to compute next
    uint32_t position = 0;
    uint32_t index = 0;  // tokens chosen
  };

  bool step() {
    Step step;
    std::vector<size_t> who;
    uint32_t room = std::min(how_.budget, engine_.rows_max());
    for (const bool decode : {true, false})
      for (size_t i = 0; i < states_.size(); i++) {
        State& s = states_[i];
        if (s.left.empty() || (s.index > 0) != decode || room == 0) continue;
        const size_t n = std::min<size_t>(s.left.size(), room);
        StepSequence part;
        part.blocks = s.blocks;
        part.position = s.position;
        part.tokens.assign(s.left.begin(), s.left.begin() + static_cast<long>(n));
        part.sample = n == s.left.size();
        part.sampling = requests_[i].sampling;
        part.index = s.index;
        room -= static_cast<uint32_t>(n);
        step.sequences.push_back(std::move(part));
        who.push_back(i);
      }
    if (who.empty()) return false;
    const Step sent = step;
    const StepDone done = run(engine_, std::move(step));
    for (size_t k = 0; k < who.size(); k++) apply(who[k], sent.sequences[k], done.sampled[k], k);
    return true;
  }

  void apply(size_t i, const StepSequence& part, Token chosen, size_t at) {
    State& s = states_[i];
    s.position += static_cast<uint32_t>(part.tokens.size());
    s.left.erase(s.left.begin(), s.left.begin() + static_cast<long>(part.tokens.size()));
    if (!part.sample) return;
    if (i == how_.watched) {
      trace_.ids.push_back(chosen);
      trace_.logits.push_back(engine_.last_logits().at(at));
    }
    s.index++;
    if (s.index < requests_[i].answer) s.left = {chosen};
  }

  ModelEngine& engine_;
  const std::vector<Request>& requests_;
  Arrangement how_;
  std::vector<State> states_;
  Trace trace_;
};

inline Trace trace(ModelEngine& engine, const std::vector<Request>& requests, Arrangement how) {
  return Schedule(engine, requests, how).run_all();
}

// `n` tokens without a pattern.
inline std::vector<Token> noise_tokens(size_t n, uint32_t vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(rng() % vocab);
  return out;
}

// The watched request and others of various lengths around it.
inline std::vector<Request> crowd(size_t n, size_t watched, const Request& request, uint32_t vocab,
                                  size_t longest) {
  std::vector<Request> out;
  for (size_t i = 0; i < n; i++) {
    if (i == watched) {
      out.push_back(request);
      continue;
    }
    const auto seed = static_cast<uint32_t>(i + 1);
    Request other{noise_tokens(1 + (i * 37) % longest, vocab, seed), 1 + i % 9, {}};
    other.sampling = {.temperature = 1, .seed = seed};
    out.push_back(std::move(other));
  }
  return out;
}

}  // namespace headrace::worker
