#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/model_support.h"
#include "tests/worker/real_cluster.h"

// Promise 1 through the actors, on any device: coordinator, workers and a model in one process. One
// request gives the same tokens, the same KV and the same logits, bit for bit, however it is
// served. A device's tests say what is asked and how large all is; how it is served and what is
// compared is here, the same for all devices.
namespace headrace::worker {

struct Subject {
  std::shared_ptr<const ModelFile> file;
  std::function<std::unique_ptr<kernels::Device>()> device{};  // none: the CPU's best path
  std::function<void()> before{};                              // called before each cluster
};

struct Served {
  std::vector<RealAnswer> answers;
  RecordingEngine::Log logits;
  bool contradicted = false;       // one token was sampled twice, from different logits
  std::vector<uint64_t> admitted;  // by worker
  uint64_t preemptions = 0;
};

inline Served serve(const Subject& subject, RealOptions options,
                    const std::vector<RealRequest>& requests) {
  if (subject.before) subject.before();
  if (subject.device) options.device = subject.device;
  RealCluster cluster(subject.file, options);
  REQUIRE(cluster.all_joined());
  Served out;
  out.answers = cluster.ask(requests);
  REQUIRE(out.answers.size() == requests.size());
  out.logits = cluster.logits();
  out.contradicted = cluster.contradicted();
  for (size_t i = 0; i < options.prefill + options.decode + options.both; ++i) {
    out.admitted.push_back(cluster.counted(i).admitted);
    out.preemptions += cluster.counted(i).preemptions;
  }
  return out;
}

// `n` prefill and as many decode workers; 0: one that does both.
inline RealOptions pool(uint32_t n) {
  RealOptions o;
  o.prefill = o.decode = n;
  o.both = n == 0 ? 1 : 0;
  return o;
}

// One at a time on a worker that caches nothing: what all else is compared with.
inline Served alone(const Subject& subject, const std::vector<RealRequest>& requests) {
  RealOptions o = pool(0);
  o.cache = false;
  return serve(subject, o, requests);
}

inline void check_same(const Served& got, const Served& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    CAPTURE(i);
    CHECK_MESSAGE(got.answers[i].status.ok(), got.answers[i].status.message);
    CHECK(got.answers[i].ids == want.answers[i].ids);
    CHECK(got.answers[i].finish == want.answers[i].finish);
    CHECK(got.answers[i].kv == want.answers[i].kv);
    CHECK(static_cast<bool>(got.answers[i].kv));
  }
  CHECK(got.logits == want.logits);
  CHECK(!got.contradicted);
}

inline std::vector<Token> some_tokens(uint64_t seed, size_t n) {
  SeededRandom random(seed);
  std::vector<Token> all(n);
  for (auto& t : all) t = static_cast<Token>(random.next() % 256);
  return all;
}

// Greedy where the seed is even.
inline RealRequest request(std::vector<Token> prompt, uint32_t max_tokens, uint64_t seed) {
  RealRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.seed = seed;
  if (seed % 2 == 1) r.sampling.temperature = 0.9f;
  if (seed % 4 == 3) r.sampling.top_p = 0.95f;
  return r;
}

inline std::vector<RealRequest> prompts_of(const std::vector<uint32_t>& lengths, uint32_t answer) {
  std::vector<RealRequest> all;
  for (const uint32_t n : lengths)
    all.push_back(request(some_tokens(42 + n, n), answer, 1000 + all.size()));
  return all;
}

// Beginnings of one text, some with an end of their own, each twice.
inline std::vector<RealRequest> beginnings(const std::vector<uint32_t>& lengths, uint32_t answer) {
  const auto text = some_tokens(42, *std::max_element(lengths.begin(), lengths.end()));
  std::vector<RealRequest> all;
  for (const uint32_t n : lengths) {
    auto prompt = text;
    prompt.resize(n);
    if (n % 3 == 0) prompt.back() ^= 1;
    for (int twice = 0; twice < 2; ++twice) all.push_back(request(prompt, answer, 1000 + n));
  }
  return all;
}

inline std::vector<RealRequest> long_answers(uint32_t n, uint32_t tokens) {
  std::vector<RealRequest> all;
  for (uint32_t i = 0; i < n; ++i) all.push_back(request(some_tokens(i, 20 + i), tokens, 77 + i));
  return all;
}

// All combinations, or of them in their order the first and each `every`th behind it.
struct Arrangements {
  std::vector<uint32_t> pools, budgets;  // workers of each role (see pool), tokens of a step
  std::vector<size_t> batches;           // requests at a time
  uint32_t every = 1;
};

inline void check_arrangements(const Subject& subject, const std::vector<RealRequest>& requests,
                               const Served& want, const Arrangements& how) {
  const auto handed = std::count_if(requests.begin(), requests.end(),
                                    [](const auto& r) { return r.prompt.size() > 1; });
  uint32_t run = 0;
  for (const uint32_t workers : how.pools)
    for (const uint32_t budget : how.budgets)
      for (const size_t batch : how.batches) {
        if (run++ % how.every != 0) continue;
        RealOptions o = pool(workers);
        o.tcp = (workers + budget / 16 + batch) % 2 == 0 || workers == 1;
        o.token_budget = budget;
        o.batch = batch;
        CAPTURE(workers);
        CAPTURE(budget);
        CAPTURE(batch);
        CAPTURE(o.tcp);
        const Served got = serve(subject, o, requests);
        check_same(got, want);
        const auto remote = std::count_if(got.answers.begin(), got.answers.end(),
                                          [](const RealAnswer& a) { return a.remote; });
        CHECK(remote == (workers == 0 ? 0 : handed));
      }
}

// `requests`: each twice (beginnings). The second finds all full blocks before its last token.
inline void check_hits(const Subject& subject, const std::vector<RealRequest>& requests,
                       const Served& want, RealOptions options) {
  const Served got = serve(subject, std::move(options), requests);
  check_same(got, want);
  for (size_t i = 1; i < requests.size(); i += 2) {
    CAPTURE(i);
    CHECK(got.answers[i].cached_tokens == (requests[i].prompt.size() - 1) / 16 * 16);
  }
}

// All at once in so few blocks that they cannot all go on.
inline void check_preemption(const Subject& subject, const std::vector<RealRequest>& requests,
                             const Served& want, uint32_t blocks, bool cache) {
  CAPTURE(cache);
  RealOptions o = pool(0);
  o.batch = requests.size();
  o.blocks = blocks;
  o.cache = cache;
  const Served got = serve(subject, o, requests);
  check_same(got, want);
  CHECK(got.preemptions > 0);
}

// Of two that decode one dies when the first answer has `tokens`.
inline void check_death(const Subject& subject, const std::vector<RealRequest>& requests,
                        const Served& want, uint32_t prefill, size_t tokens) {
  CAPTURE(prefill);
  RealOptions o;
  o.prefill = prefill;
  (prefill > 0 ? o.decode : o.both) = 2;
  o.batch = requests.size();
  o.kill_after = tokens;
  o.victim = prefill;
  const Served got = serve(subject, o, requests);
  check_same(got, want);
  CHECK(got.admitted[o.victim] > 0);  // so it had something to lose
  CHECK(got.admitted[o.victim + 1] > 0);
}

}  // namespace headrace::worker
