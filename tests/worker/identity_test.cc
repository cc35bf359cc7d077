// Same tokens every way (promise 1), in process: tokens, logits and KV bytes of one request compare
// equal alone and in batches of 2, 7 and 16, with chunk budgets of 16, 64 and 512, with blocks
// anywhere in the pool, with one thread or several, and on every path of the processor.
#include "tests/worker/identity.h"

namespace headrace::worker {
namespace {

struct Subject {
  std::string name;
  std::shared_ptr<const ModelFile> file;
  Request request;
  uint32_t block_tokens;
  size_t others_longest;  // prompt of those beside it
  bool thorough;          // all combinations, not a selection
};

std::unique_ptr<ModelEngine> engine_of(const Subject& s, kernels::CpuPath path, int threads) {
  EngineOptions options;
  options.block_tokens = s.block_tokens;
  options.blocks = 16 * (400 / s.block_tokens);
  return make_engine(s.file, kernels::make_cpu_device(path, threads), options);
}

struct Crowd {
  size_t size, watched;
  Arrangement how;
};

std::vector<Crowd> crowds(bool thorough) {
  std::vector<Crowd> out;
  for (const uint32_t budget : {16u, 64u, 512u}) {
    if (thorough || budget == 16) out.push_back({1, 0, {budget, 1, 0}});
    if (thorough || budget == 64) out.push_back({2, 1, {budget, 2, 1}});
    if (thorough || budget == 512) out.push_back({7, 3, {budget, 3, 3}});
    if (thorough || budget == 64) out.push_back({16, 11, {budget, 4, 11}});
  }
  return out;
}

void check_equal(const Trace& a, const Trace& b) {
  CHECK(a.ids == b.ids);
  CHECK(a.logits == b.logits);
  CHECK(a.blocks == b.blocks);
}

// On each path alone and in every crowd; the paths against each other.
void check_subject(const Subject& s) {
  CAPTURE(s.name);
  const uint32_t vocab = s.file->known_tokens();
  Trace first;
  for (const kernels::CpuPath path : cpu_paths()) {
    CAPTURE(kernels::name(path));
    const auto engine = engine_of(s, path, 2);
    const Trace alone = trace(*engine, {s.request}, {});
    REQUIRE(alone.ids.size() == s.request.answer);
    CHECK(std::ranges::all_of(alone.ids, [](Token t) { return t >= 0; }));
    if (first.ids.empty()) first = alone;
    check_equal(alone, first);
    // The portable path is slow on a real model; there the largest crowd stands for all.
    const bool slow = !s.thorough && path == kernels::CpuPath::kPortable;
    for (const Crowd& c : crowds(s.thorough)) {
      if (slow && c.size != 16) continue;
      CAPTURE(c.size);
      CAPTURE(c.how.budget);
      check_equal(
          trace(*engine, crowd(c.size, c.watched, s.request, vocab, s.others_longest), c.how),
          alone);
    }
  }
}

Subject tiny(const std::string& variant, uint32_t block_tokens, Sampling sampling = {}) {
  // Past 256 keys, so that a second slice of attention begins, and far enough for a second block of
  // decoded tokens.
  Request r{noise_tokens(250, 259, 77), 24, sampling};
  return {variant,      open_model(test_model("tiny/" + variant + ".gguf")),
          std::move(r), block_tokens,
          90,           true};
}

TEST_CASE("a quantized model gives the same bits every way") {
  check_subject(tiny("q4_1", 16));
  check_subject(tiny("q4_0", 32, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 9}));
  check_subject(tiny("q8_0", 64));
}

TEST_CASE("a model of floats gives the same bits every way") {
  check_subject(tiny("f16", 32));
  check_subject(tiny("bf16", 16, {.temperature = 1.5f, .min_p = 0.01f, .seed = 3}));
}

// Its product of q, k and v and its rotations are two operations.
TEST_CASE("a model whose heads have an odd width gives the same bits every way") {
  check_subject(tiny("odd", 16));
}

TEST_CASE("one thread or three: the same bits") {
  const Subject s = tiny("q4_0", 32);
  const auto best = kernels::best_cpu_path();
  const Trace one = trace(*engine_of(s, best, 1), {s.request}, {});
  check_equal(trace(*engine_of(s, best, 3), {s.request}, {}), one);
}

TEST_CASE("the reference device too does not see its neighbours") {
  const Subject s = tiny("q8_0", 16);
  EngineOptions options;
  options.block_tokens = 16;
  options.blocks = 400;
  const auto engine = make_engine(s.file, kernels::make_reference_device(), options);
  const Trace alone = trace(*engine, {s.request}, {});
  check_equal(trace(*engine, crowd(7, 2, s.request, 259, 20), {64, 5, 2}), alone);
}

// A comparison that cannot fail proves nothing.
TEST_CASE("another prompt, seed or token gives another trace") {
  const Subject s = tiny("q4_0", 32, {.temperature = 1, .seed = 1});
  const auto engine = engine_of(s, kernels::best_cpu_path(), 2);
  const Trace a = trace(*engine, {s.request}, {});
  Request other = s.request;
  other.prompt[0] ^= 1;
  const Trace b = trace(*engine, {other}, {});
  CHECK(a.logits[0] != b.logits[0]);
  CHECK(a.blocks[0] != b.blocks[0]);
  other = s.request;
  other.sampling.seed = 2;
  CHECK(a.ids != trace(*engine, {other}, {}).ids);
}

#ifdef NDEBUG
TEST_CASE("the real model gives the same bits every way") {
  if (kSanitized) return;
  const auto file = open_model(real_model());
  check_subject(
      {"SmolLM2", file, {noise_tokens(262, file->known_tokens(), 5), 8, {}}, 32, 12, false});
}
#endif

}  // namespace
}  // namespace headrace::worker
