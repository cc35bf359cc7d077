// Promise 1 with GPUs as devices, on the emulator: what tests/worker shows of the CPU (served.h).
// One request gives the same tokens, KV and logits alone or in a batch, whole or in chunks, from a
// cached prefix, on one worker or handed over, preempted or replayed, with every type of KV.
#include "kernels/cuda_device.h"
#include "tests/simt/cudart/control.h"
#include "tests/worker/served.h"

namespace headrace::worker {
namespace {

using kernels::KvType;

constexpr uint32_t kAnswer = 5;

Subject gpu(KvType type = KvType::kF16) {
  static const auto file = open_model(test_model("tiny/q4_1.gguf"));
  return {.file = file,
          .device = [type] { return kernels::make_cuda_device({.kv_type = type}); },
          .before = [] { simt::reset(simt::Streams::kThreaded); }};
}

// Lengths around blocks (16) and slices of attention (128).
const std::vector<RealRequest>& requests() {
  static const auto all = prompts_of({1, 2, 16, 17, 64, 127, 129, 145}, kAnswer);
  return all;
}

const Served& right() {
  static const Served served = alone(gpu(), requests());
  return served;
}

TEST_CASE("batches, chunks and pools of GPUs change no bit") {
  CHECK(right().answers[3].ids != right().answers[4].ids);
  CHECK(right().logits.size() == kAnswer * requests().size());
  check_arrangements(gpu(), requests(), right(),
                     {.pools = {0, 1, 2},
                      .budgets = {16, 64, 512},
                      .batches = {3, 8},
                      .every = kSanitized ? 9 : 3});
}

TEST_CASE("a cached prefix of every length changes no bit") {
  const auto all = beginnings({145, 1, 2, 15, 16, 17, 31, 32, 33, 48, 100, 127, 128, 129, 144}, 3);
  const Served want = alone(gpu(), all);
  for (const uint32_t workers : {0u, 1u}) {
    CAPTURE(workers);
    check_hits(gpu(), all, want, pool(workers));
  }
}

TEST_CASE("preemption changes no bit") {
  if (kSanitized) return;  // so many tokens, since 256 are promised beforehand: 18 blocks each
  const auto all = long_answers(2, 272);
  check_preemption(gpu(), all, alone(gpu(), all), 37, false);
}

TEST_CASE("a worker's death changes no bit") {
  for (const uint32_t prefill : {0u, 1u}) check_death(gpu(), requests(), right(), prefill, 2);
}

TEST_CASE("with every type of KV: handed over and in a batch as alone") {
  const auto all = prompts_of({17, 40, 129}, kAnswer);
  std::vector<Served> served;
  for (const KvType type : kernels::kKvTypes) {
    CAPTURE(kernels::name(type));
    const Served& want = served.emplace_back(alone(gpu(type), all));
    RealOptions o = pool(1);
    o.tcp = true;
    o.token_budget = 64;
    o.batch = all.size();
    check_same(serve(gpu(type), o, all), want);
    // They are of different types indeed.
    for (size_t i = 0; i + 1 < served.size(); ++i) CHECK(served[i].logits != want.logits);
  }
}

TEST_CASE("workers of different types of KV are never in one cluster") {
  const Subject halves = gpu(KvType::kF16), bytes = gpu(KvType::kFp8);
  halves.before();
  RealOptions o = pool(1);
  size_t made = 0;
  o.device = [&] { return made++ == 0 ? halves.device() : bytes.device(); };
  RealCluster cluster(halves.file, o);
  CHECK(!cluster.all_joined());
  REQUIRE(cluster.refusals().size() == 1);  // of whoever came second
  const std::string why = cluster.refusals()[0];
  CAPTURE(why);
  for (const char* part : {"KV layout", "'f16 block", "'fp8 block"})
    CHECK(why.find(part) != why.npos);
}

}  // namespace
}  // namespace headrace::worker
