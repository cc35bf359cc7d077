#include <doctest/doctest.h>

#include "tests/worker/model_support.h"

// What the engine of a real model does with a prepared step.
namespace headrace::worker {
namespace {

std::unique_ptr<ModelEngine> tiny() {
  EngineOptions options;
  options.blocks = 8;
  options.block_tokens = 16;
  return make_engine(open_model(test_model("tiny/q8_0.gguf")),
                     kernels::make_cpu_device(kernels::best_cpu_path(), 2), options);
}

StepSequence sequence(std::vector<uint32_t> blocks, uint32_t position, std::vector<Token> tokens) {
  StepSequence s;
  s.blocks = std::move(blocks);
  s.position = position;
  s.tokens = std::move(tokens);
  s.sample = true;
  return s;
}

StepSequence after(StepSequence s, uint32_t index, std::vector<Token> ends = {}) {
  s.position += static_cast<uint32_t>(s.tokens.size());
  s.tokens = {0};
  s.follows = index;
  s.end_tokens = std::move(ends);
  return s;
}

// A step in flight whose end waits until the test has done what it does meanwhile.
struct Held {
  explicit Held(ModelEngine& engine, Step step) {
    std::promise<void> reached;
    engine.run(Step{{sequence({7}, 0, {1})}}, [&](StepDone) {
      // The thread of the engine is here: what is run now cannot end before it is let go.
      engine.run(std::move(step), [this](StepDone d) { first.set_value(std::move(d)); });
      reached.set_value();
      go.get_future().wait();
    });
    reached.get_future().wait();
  }
  std::promise<void> go;
  std::promise<StepDone> first;
};

auto keep(std::promise<StepDone>& promise) {
  return [&promise](StepDone d) { promise.set_value(std::move(d)); };
}

TEST_CASE(
    "a prepared step follows with the sampled tokens, and gives what one run after it gives") {
  const auto engine = tiny();
  const std::vector<Token> wanted = generate(*engine, {1, 2, 3}, 3).ids;
  const StepSequence a = sequence({0}, 0, {1, 2, 3});
  const StepSequence b = sequence({1}, 0, {4, 5});
  Held held(*engine, Step{{b, a}});
  std::promise<StepDone> second;
  CHECK(engine->prepare(Step{{after(a, 1)}}, keep(second)));
  held.go.set_value();
  const StepDone first = held.first.get_future().get();
  CHECK(first.followed);
  CHECK(first.sampled[1] == wanted[0]);
  const StepDone then = second.get_future().get();
  CHECK_FALSE(then.followed);
  CHECK(then.sampled == std::vector<Token>{wanted[1]});
  CHECK(run(*engine, Step{{sequence({0}, 4, {wanted[1]})}}).sampled[0] == wanted[2]);
}

TEST_CASE("each step may prepare the next in its callback") {
  const auto engine = tiny();
  const std::vector<Token> wanted = generate(*engine, {1, 2, 3}, 20).ids;
  std::vector<Token> ids;
  std::promise<void> over;
  StepSequence s = sequence({0, 1}, 0, {1, 2, 3});
  std::function<void(StepDone)> next = [&](StepDone d) {
    ids.push_back(d.sampled[0]);
    if (ids.size() == 20) return over.set_value();
    // In flight from now on is what was prepared; the first time there is nothing.
    if (!d.followed) {
      s.position += static_cast<uint32_t>(s.tokens.size());
      s.tokens = {d.sampled[0]};
      s.follows.reset();
      engine->run(Step{{s}}, next);
    }
    if (ids.size() == 19) return;
    s = after(s, 0);
    CHECK(engine->prepare(Step{{s}}, next));
  };
  engine->run(Step{{s}}, next);
  over.get_future().wait();
  CHECK(ids == wanted);
}

TEST_CASE("an end token drops the prepared step, and the engine is free") {
  const auto engine = tiny();
  const Token end = generate(*engine, {1, 2, 3}, 1).ids[0];
  const StepSequence a = sequence({0}, 0, {1, 2, 3});
  Held held(*engine, Step{{a}});
  std::promise<StepDone> second;
  CHECK(engine->prepare(Step{{after(a, 0, {end})}}, keep(second)));
  held.go.set_value();
  CHECK_FALSE(held.first.get_future().get().followed);
  CHECK_FALSE(engine->withdraw());
  CHECK_FALSE(engine->prepare(Step{{after(a, 0)}}, keep(second)));
  CHECK(run(*engine, Step{{a}}).sampled[0] == end);
  auto none = second.get_future();
  CHECK(none.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

TEST_CASE("logits that are no numbers drop it where it goes on from them") {
  EngineOptions options;
  options.blocks = 8;
  for (const bool goes_on : {true, false}) {
    CAPTURE(goes_on);
    const auto engine = make_engine(open_model(test_model("script/inf.gguf")),
                                    kernels::make_cpu_device(kernels::best_cpu_path(), 2), options);
    const StepSequence good = sequence({0}, 0, {'A'});
    const StepSequence bad = sequence({1}, 0, {'B', '*'});
    Held held(*engine, Step{{good, bad}});
    std::promise<StepDone> second;
    Step next{{after(good, 0)}};
    if (goes_on) next.sequences.push_back(after(bad, 1));
    CHECK(engine->prepare(std::move(next), keep(second)));
    held.go.set_value();
    const StepDone first = held.first.get_future().get();
    CHECK(first.sampled == std::vector<Token>{'B', StepDone::kNumeric});
    CHECK(first.followed == !goes_on);
    if (!goes_on) CHECK(second.get_future().get().sampled == std::vector<Token>{'C'});
  }
}

TEST_CASE("what is withdrawn does not run; what has begun is not withdrawn") {
  const auto engine = tiny();
  const StepSequence a = sequence({0}, 0, {1, 2, 3});
  {
    Held held(*engine, Step{{a}});
    std::promise<StepDone> never;
    CHECK_FALSE(engine->withdraw());
    CHECK(engine->prepare(Step{{after(a, 0)}}, keep(never)));
    CHECK(engine->withdraw());
    CHECK_FALSE(engine->withdraw());
    held.go.set_value();
    CHECK_FALSE(held.first.get_future().get().followed);
  }
  std::promise<StepDone> second;
  {
    Held held(*engine, Step{{a}});
    CHECK(engine->prepare(Step{{after(a, 0)}}, keep(second)));
    held.go.set_value();
    CHECK(held.first.get_future().get().followed);
    CHECK_FALSE(engine->withdraw());
  }
  CHECK(second.get_future().get().sampled.size() == 1);
}

// Each step prepares another one: were that run at the end, too, there would be none.
TEST_CASE("ending drops what is prepared") {
  size_t ended = 0;
  bool last_followed = true;
  auto owned = tiny();
  ModelEngine* const engine = owned.get();
  std::promise<void> under_way;
  const StepSequence known = sequence({0}, 0, {1, 2, 3});
  std::function<void(StepDone)> next = [&](StepDone d) {
    last_followed = d.followed;
    if (++ended == 3) under_way.set_value();
    if (ended == 1) engine->run(Step{{known}}, next);
    if (ended == 1 || d.followed) CHECK(engine->prepare(Step{{known}}, next));
  };
  engine->run(Step{{known}}, next);
  under_way.get_future().wait();
  owned.reset();
  CHECK(ended >= 3);
  CHECK_FALSE(last_followed);
}

}  // namespace
}  // namespace headrace::worker
