#include "worker/model_engine.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

std::unique_ptr<ModelEngine> tiny(const char* variant = "q8_0", EngineOptions options = {}) {
  if (options.blocks == 0) options.blocks = 8;
  options.block_tokens = 16;
  return make_engine(open_model(test_model("tiny/" + std::string(variant) + ".gguf")),
                     kernels::make_cpu_device(kernels::best_cpu_path(), 2), options);
}

StepSequence sequence(std::vector<uint32_t> blocks, uint32_t position, std::vector<Token> tokens,
                      bool sample) {
  StepSequence s;
  s.blocks = std::move(blocks);
  s.position = position;
  s.tokens = std::move(tokens);
  s.sample = sample;
  return s;
}

bool zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

TEST_CASE("only sequences that ask are sampled, each on its own") {
  const auto engine = tiny();
  const StepDone done =
      run(*engine, Step{{sequence({0}, 0, {1, 2, 3}, false), sequence({1}, 0, {4, 5}, true),
                         sequence({2}, 0, {1, 2, 3}, true)}});
  REQUIRE(done.sampled.size() == 3);
  CHECK(done.sampled[0] == -1);
  CHECK(done.sampled[1] >= 0);
  CHECK(done.sampled[1] < 259);
  CHECK(engine->last_logits()[0].empty());
  CHECK(engine->last_logits()[1].size() == 259);
  const StepDone alone = run(*engine, Step{{sequence({3}, 0, {4, 5}, true)}});
  CHECK(alone.sampled[0] == done.sampled[1]);
}

TEST_CASE("KV for less than a context serves all the positions that it has room for") {
  EngineOptions few, many;
  few.blocks = 2;
  many.blocks = 64;
  few.keep_logits = many.keep_logits = true;
  const auto small = tiny("q8_0", few), large = tiny("q8_0", many);
  REQUIRE(small->card().context > 32);
  std::vector<Token> prompt;
  for (Token t = 0; t < 31; ++t) prompt.push_back(t * 7);
  for (ModelEngine* engine : {small.get(), large.get()}) {
    run(*engine, Step{{sequence({0, 1}, 0, prompt, false)}});
    run(*engine, Step{{sequence({0, 1}, 31, {5}, true)}});  // the last position
  }
  CHECK(small->last_logits() == large->last_logits());
  CHECK(small->last_logits()[0].size() == 259);
}

TEST_CASE("pinned threads compute the same, and nobody else is pinned") {
  EngineOptions options;
  options.keep_logits = true;
  const auto free = tiny("q8_0", options);
  options.pin_threads = true;
  const auto pinned = tiny("q8_0", options);
  cpu_set_t before, after;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  for (ModelEngine* engine : {free.get(), pinned.get()})
    run(*engine, Step{{sequence({0}, 0, {1, 2, 3}, true)}});
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(pinned->last_logits() == free->last_logits());
}

TEST_CASE("a step tells what it cost") {
  const auto engine = tiny();
  const StepDone done = run(*engine, Step{{sequence({0}, 0, {1, 2, 3}, true)}});
  CHECK(done.seconds > 0);
  const auto find = [&](const std::string& op) {
    const auto it = std::find_if(done.accounts.begin(), done.accounts.end(),
                                 [&](const auto& a) { return a.op == op; });
    REQUIRE_MESSAGE(it != done.accounts.end(), op);
    return *it;
  };
  CHECK(find("matmul").runs == 2 * 2 + 1);
  CHECK(find("matmul_rope").runs == 2);
  CHECK(find("matmul_swiglu").runs == 2);
  kernels::Cost products;
  for (const auto& a : done.accounts)
    if (kernels::is_product(a.op)) products += a.cost;
  CHECK(products.weight_bytes == engine->card().cost.weight_bytes);
  // Beside the products: 11 a value of SwiGLU (96), 3 a rotated value of q (64) and k (32).
  CHECK(products.flops == 3 * engine->card().cost.flops_per_token + engine->card().cost.head_flops +
                              2 * 3 * (11 * 96 + 3 * (64 + 32)));
  CHECK(find("attention").runs == 2);
  CHECK(find("sample").runs == 1);
}

TEST_CASE("heads of an odd width are rotated after their product, not within it") {
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    EngineOptions options;
    options.blocks = 1;
    const auto engine =
        make_engine(open_model(test_model("tiny/odd.gguf")), std::move(d.device), options);
    const StepDone done = run(*engine, Step{{sequence({0}, 0, {1, 2, 3}, true)}});
    const auto runs = [&](const std::string& op) {
      uint64_t n = 0;
      for (const auto& a : done.accounts) n += a.op == op ? a.runs : 0;
      return n;
    };
    CHECK(runs("matmul_rope") == 0);
    CHECK(runs("rope_append_kv") == 2);
  }
}

// Against what double arithmetic makes of the logits, which the test sees after the edits.
TEST_CASE("edits come before the choice and show in the log-probabilities") {
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    EngineOptions options;
    options.blocks = 4;
    const auto engine =
        make_engine(open_model(test_model("tiny/base.gguf")), std::move(d.device), options);
    const StepSequence plain = sequence({0}, 0, {1, 2, 3}, true);
    const StepDone before = run(*engine, Step{{plain}});
    const std::vector<float> logits = engine->last_logits()[0];
    const Token best = before.sampled[0];
    CHECK(before.logprobs.empty());

    StepSequence edited = plain;
    edited.edits = {{3, 1.25f, 0.5f}, {best, 1, -100}, {258, 0.5f, 0}};
    std::sort(edited.edits.begin(), edited.edits.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    edited.sampling.logprobs = 4;
    StepSequence asks = sequence({1}, 0, {1, 2, 3}, true);
    asks.sampling.logprobs = 20;
    StepSequence silent = sequence({2}, 0, {1, 2, 3}, false);
    silent.sampling.logprobs = 20;
    const StepDone after = run(*engine, Step{{edited, silent, asks, plain}});
    CHECK(after.sampled[0] != best);
    CHECK(after.sampled[2] == best);
    CHECK(engine->last_logits()[2] == logits);
    std::vector<float> wanted = logits;
    for (const auto& e : edited.edits) {
      float& x = wanted[static_cast<size_t>(e.id)];
      x = static_cast<float>((x > 0 ? double{x} / e.divide : double{x} * e.divide) + e.add);
    }
    CHECK(engine->last_logits()[0] == wanted);

    REQUIRE(after.logprobs.size() == 4);
    CHECK(after.logprobs[1] == Logprobs{});
    CHECK(after.logprobs[3] == Logprobs{});
    for (size_t i : {0u, 2u}) {
      const Logprobs& got = after.logprobs[i];
      const std::vector<float>& x = i == 0 ? wanted : logits;
      double sum = 0;
      for (const float v : x) sum += std::exp(double{v});
      REQUIRE(got.top.size() == (i == 0 ? 4u : 20u));
      CHECK(got.top[0].id == after.sampled[i]);
      CHECK(got.top[0].logprob == got.chosen);
      for (const TokenLogprob& t : got.top)
        CHECK(t.logprob == doctest::Approx(x[static_cast<size_t>(t.id)] - std::log(sum)));
      for (size_t k = 1; k < got.top.size(); k++)
        CHECK(got.top[k - 1].logprob >= got.top[k].logprob);
    }
    const auto ran = [&after](const std::string& op) {
      return std::any_of(after.accounts.begin(), after.accounts.end(), [&](const auto& a) {
        return a.op == op && a.runs == 1 && a.cost.activation_bytes > 0;
      });
    };
    CHECK(ran("adjust_logits"));
    CHECK(ran("log_probs"));
    for (const auto& a : before.accounts) {
      CHECK(a.op != std::string("adjust_logits"));
      CHECK(a.op != std::string("log_probs"));
    }
  }
}

TEST_CASE("edits and alternatives of more sequences than one pass of the output matrix holds") {
  EngineOptions options;
  options.blocks = 100;
  const auto engine = tiny("q4_0", options);
  Step step;
  for (uint32_t i = 0; i < 100; i++) {
    step.sequences.push_back(sequence({i}, 0, {static_cast<Token>(i)}, i % 9 != 4));
    if (i % 3 == 0) step.sequences.back().edits = {{static_cast<Token>(i), 1, 1000}};
    if (i % 2 == 0) step.sequences.back().sampling.logprobs = 1 + i % 20;
  }
  const StepDone done = run(*engine, step);
  REQUIRE(done.logprobs.size() == 100);
  for (uint32_t i = 0; i < 100; i++) {
    CAPTURE(i);
    const bool samples = i % 9 != 4;
    CHECK((done.sampled[i] == -1) == !samples);
    if (samples && i % 3 == 0) CHECK(done.sampled[i] == static_cast<Token>(i));
    CHECK(done.logprobs[i].top.size() == (samples && i % 2 == 0 ? 1 + i % 20 : 0));
    if (samples && i % 2 == 0) CHECK(done.logprobs[i].top[0].id == done.sampled[i]);
  }
}

TEST_CASE("a block that a step begins is zeroed first; one that it continues is not") {
  const auto engine = tiny();
  const size_t bytes = engine->card().block_bytes;
  for (uint32_t b = 0; b < 2; b++)
    std::fill_n(engine->host_block(BlockId{b}), bytes, std::byte{0xff});
  run(*engine, Step{{sequence({0, 1}, 0, std::vector<Token>(17, 7), false)}});
  const auto seen = engine->read_block(BlockId{1}, 0, bytes);
  const std::vector<std::byte> dirty(seen.begin(), seen.end());
  CHECK_FALSE(zero(dirty));
  // V of one head is [token][dim]: all but the first token's row is still zero.
  const size_t half = bytes / 8;  // K or V of one head in one layer
  CHECK(zero(std::span(dirty).subspan(half + half / 16, half - half / 16)));
  run(*engine, Step{{sequence({0, 1}, 17, {9}, false)}});
  const auto block = engine->read_block(BlockId{1}, 0, bytes);
  CHECK(std::equal(dirty.begin() + static_cast<long>(half),
                   dirty.begin() + static_cast<long>(half + half / 16),
                   block.begin() + static_cast<long>(half)));
}

TEST_CASE("more samples than one pass of the output matrix holds") {
  EngineOptions options;
  options.blocks = 150;
  const auto engine = tiny("q4_0", options);
  Step step;
  for (uint32_t i = 0; i < 150; i++)
    step.sequences.push_back(sequence({i}, 0, {static_cast<Token>(i), 3}, i % 7 != 0));
  const StepDone done = run(*engine, step);
  for (uint32_t i = 0; i < 150; i++) {
    CAPTURE(i);
    if (i % 7 == 0) {
      CHECK(done.sampled[i] == -1);
      continue;
    }
    CHECK(engine->last_logits()[i].size() == 259);
    CHECK(done.sampled[i] ==
          std::max_element(engine->last_logits()[i].begin(), engine->last_logits()[i].end()) -
              engine->last_logits()[i].begin());
  }
}

TEST_CASE("the next step may begin inside the callback of the last") {
  const auto engine = tiny();
  std::promise<int> done;
  int left = 20;
  std::function<void(StepDone)> again = [&](StepDone) {
    if (--left == 0) return done.set_value(left);
    engine->run(Step{{sequence({0}, 0, {1}, true)}}, again);
  };
  engine->run(Step{{sequence({0}, 0, {1}, true)}}, again);
  CHECK(done.get_future().get() == 0);
}

TEST_CASE("ending waits for the step in flight") {
  std::atomic<bool> called = false;
  {
    const auto engine = tiny();
    engine->run(Step{{sequence({0, 1, 2}, 0, std::vector<Token>(40, 7), true)}},
                [&](StepDone) { called = true; });
  }
  CHECK(called);
}

TEST_CASE("an overflow ends its own sequence only") {
  EngineOptions options;
  options.blocks = 4;
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    const auto engine =
        make_engine(open_model(test_model("script/inf.gguf")), std::move(d.device), options);
    const StepDone done =
        run(*engine, Step{{sequence({0}, 0, {'A'}, true), sequence({1}, 0, {'B', '*'}, true),
                           sequence({2}, 0, {'*', 'C'}, true)}});
    CHECK(done.sampled == std::vector<Token>{'B', StepDone::kNumeric, 'D'});
    StepSequence asks = sequence({3}, 0, {'*'}, true);
    asks.sampling.logprobs = 2;
    const StepDone overflown = run(*engine, Step{{asks}});
    CHECK(overflown.sampled == std::vector<Token>{StepDone::kNumeric});
    CHECK(overflown.logprobs == std::vector<Logprobs>(1));
  }
}

TEST_CASE("options that make no engine are refused") {
  const auto file = open_model(test_model("tiny/base.gguf"));
  const auto with = [&](EngineOptions options) {
    const auto engine = ModelEngine::create(file, kernels::make_reference_device(), options);
    return engine ? "" : engine.error().message;
  };
  CHECK(with({.block_tokens = 24, .blocks = 1}) == "KV blocks hold 16, 32 or 64 tokens, not 24");
  CHECK(with({.blocks = 0}) == "an engine needs at least one KV block and one row");
}

TEST_CASE("a seed gives the same tokens again, another one others") {
  const auto engine = tiny("base");
  const Sampling warm{.temperature = 2, .seed = 5};
  Sampling other = warm;
  other.seed = 6;
  const auto a = generate(*engine, {1, 2, 3}, 20, warm).ids;
  CHECK(a == generate(*engine, {1, 2, 3}, 20, warm).ids);
  CHECK(a != generate(*engine, {1, 2, 3}, 20, other).ids);
}

}  // namespace
}  // namespace headrace::worker
