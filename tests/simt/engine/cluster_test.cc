// Promise 1 through the actors with GPUs as devices, on the emulator: coordinator, workers and a
// model in one process. One request gives the same tokens, KV and logits alone or in a batch, whole
// or in chunks, from a cached prefix, on one worker or handed over, preempted or replayed.
#include <algorithm>

#include "kernels/cuda_device.h"
#include "tests/simt/cudart/control.h"
#include "tests/worker/model_support.h"
#include "tests/worker/real_cluster.h"

namespace headrace::worker {
namespace {

struct Outcome {
  std::vector<RealAnswer> answers;
  RecordingEngine::Log logits;
  uint64_t preemptions = 0;
  uint64_t hits = 0;
};

// Lengths around blocks (16) and slices of attention (128); greedy and sampled in turn.
std::vector<RealRequest> requests() {
  SeededRandom random(42);
  std::vector<RealRequest> all;
  for (const uint32_t n : {1u, 2u, 16u, 17u, 64u, 127u, 129u, 145u}) {
    RealRequest r;
    r.prompt.resize(n);
    for (auto& t : r.prompt) t = static_cast<Token>(random.next() % 256);
    r.max_tokens = 5;
    r.sampling.seed = 1000 + n;
    if (all.size() % 2 == 1) r.sampling.temperature = 0.9f;
    if (all.size() % 4 == 3) r.sampling.top_p = 0.95f;
    all.push_back(std::move(r));
  }
  return all;
}

RealOptions gpus(uint32_t prefill, uint32_t decode, uint32_t both) {
  RealOptions o;
  o.prefill = prefill;
  o.decode = decode;
  o.both = both;
  o.device = [] { return kernels::make_cuda_device({}); };
  return o;
}

Outcome serve(const RealOptions& options, const std::vector<RealRequest>& asked) {
  static const auto file = open_model(test_model("tiny/q4_1.gguf"));
  simt::reset(simt::Streams::kThreaded);
  Outcome out;
  RealCluster cluster(file, options);
  REQUIRE(cluster.all_joined());
  out.answers = cluster.ask(asked);
  out.logits = cluster.logits();
  CHECK_FALSE(cluster.contradicted());
  for (size_t w = 0; w < options.prefill + options.decode + options.both; ++w) {
    out.preemptions += cluster.counted(w).preemptions;
    out.hits += cluster.counted(w).hits;
  }
  REQUIRE(out.answers.size() == asked.size());
  return out;
}

const Outcome& alone() {
  static const Outcome outcome = serve(gpus(0, 0, 1), requests());
  return outcome;
}

void check_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    CAPTURE(i);
    CHECK_MESSAGE(got.answers[i].status.ok(), got.answers[i].status.message);
    CHECK(got.answers[i].ids == want.answers[i].ids);
    CHECK(got.answers[i].kv == want.answers[i].kv);
    CHECK(static_cast<bool>(got.answers[i].kv));
  }
  for (const auto& [key, digest] : want.logits) {
    const auto found = got.logits.find(key);
    CHECK((found != got.logits.end() && found->second == digest));
  }
}

TEST_CASE("batches, chunks and pools of GPUs change no bit") {
  CHECK(alone().answers[3].ids != alone().answers[4].ids);
  CHECK(alone().logits.size() == 5 * requests().size());
  uint32_t run = 0;
  for (const uint32_t pool : {0u, 1u, 2u}) {
    for (const uint32_t budget : {16u, 64u}) {
      if (kSanitized && run++ % 3 != 1) continue;
      RealOptions o = gpus(pool, pool, pool == 0 ? 1 : 0);
      o.tcp = pool == 1;
      o.token_budget = budget;
      o.batch = budget == 16 ? 3 : 8;
      CAPTURE(pool);
      CAPTURE(budget);
      const Outcome got = serve(o, requests());
      check_same(got, alone());
      const auto remote = std::count_if(got.answers.begin(), got.answers.end(),
                                        [](const RealAnswer& a) { return a.remote; });
      CHECK(remote == (pool == 0 ? 0 : 7));  // all but the prompt of one token
    }
  }
}

TEST_CASE("a cached prefix changes no bit") {
  std::vector<RealRequest> twice;
  for (const RealRequest& r : requests()) twice.insert(twice.end(), 2, r);
  const Outcome got = serve(gpus(0, 0, 1), twice);
  CHECK(got.hits > 0);
  for (size_t i = 0; i < alone().answers.size(); ++i) {
    for (const size_t at : {2 * i, 2 * i + 1}) {
      CAPTURE(at);
      CHECK(got.answers[at].ids == alone().answers[i].ids);
      CHECK(got.answers[at].kv == alone().answers[i].kv);
    }
  }
}

TEST_CASE("preemption changes no bit") {
  if (kSanitized) return;  // 300 tokens each, since fewer are promised beforehand
  std::vector<RealRequest> long_ones = requests();
  long_ones.resize(4);
  long_ones.erase(long_ones.begin(), long_ones.begin() + 2);
  for (RealRequest& r : long_ones) r.max_tokens = 300;
  const Outcome roomy = serve(gpus(0, 0, 1), long_ones);
  RealOptions tight = gpus(0, 0, 1);
  tight.blocks = 37;
  tight.batch = long_ones.size();
  tight.cache = false;
  const Outcome got = serve(tight, long_ones);
  CHECK(got.preemptions > 0);
  check_same(got, roomy);
}

TEST_CASE("a worker's death changes no bit") {
  RealOptions o = gpus(1, 2, 0);
  o.kill_after = 2;
  o.victim = 1;
  o.batch = 8;
  check_same(serve(o, requests()), alone());
}

}  // namespace
}  // namespace headrace::worker
