// The way of tokens into the log and to the client: coordinator/dispatcher_tokens.cc.
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

#include <limits>

namespace headrace::coordinator {
using namespace fakes;
namespace {

struct LogprobClient final : ClientPort {
  void on(Chunk chunk) override {
    CHECK(chunk.logprobs.size() == chunk.ids.size());
    for (const Logprobs& one : chunk.logprobs) chosen.push_back(one.chosen);
  }
  void on(Ended end) override { ended = std::move(end); }
  std::vector<float> chosen;
  std::optional<Ended> ended;
};

}  // namespace

TEST_CASE("log-probabilities go with their tokens, also over a replay") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = std::make_shared<LogprobClient>();
  Submit m;
  m.request = {1, 1};
  m.prompt = "A";
  m.sampling.logprobs = 1;
  m.client = Ref<ClientPort>(b.strand, client);
  b.tell(std::move(m));
  auto run = b.run_of(1, 0, "ab");
  run.logprobs = {{-1, {{'a', -1}}}, {-2, {{'b', -2}}}};
  b.from(1, to_coordinator::Tokens{{run}});
  b.lose(1);
  auto more = b.run_of(2, 1, "bc", Finish::kStop);  // repeats one
  more.logprobs = {{-9, {}}, {-3, {}}};
  b.from(2, to_coordinator::Tokens{{more}});
  REQUIRE(client->ended);
  CHECK(client->chosen == std::vector<float>{-1, -2, -3});
}

TEST_CASE("log-probabilities that do not fit fail the attempt") {
  for (const int kind : {0, 1, 2}) {
    Bench b;
    b.join(Role::kBoth, 1);
    b.join(Role::kBoth, 2);
    Submit m;
    m.request = {1, 1};
    m.prompt = "A";
    m.sampling.logprobs = 1;
    auto client = b.submit(std::move(m));
    auto run = b.run_of(1, 0, "ab");
    run.logprobs = {{-1, {}}};
    if (kind == 1) run.logprobs.push_back({std::numeric_limits<float>::quiet_NaN(), {}});
    if (kind == 2) run.logprobs.push_back({-1, std::vector<TokenLogprob>(21)});
    b.from(1, to_coordinator::Tokens{{run}});
    CHECK(client->ids.empty());
    CHECK(b.status().totals.attempts_failed == 1);
    CHECK(b.last<to_worker::Prepare>(2) != nullptr);
  }
}

TEST_CASE("a million tokens in one message are too many, whoever sends them") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.join(Role::kBoth, 2);
  auto client = b.submit("A", 1, 10);
  b.tokens(1, 0, std::string(1'000'000, 'x'));
  CHECK(client->ids.empty());
  CHECK(b.status().totals.attempts_failed == 1);
  auto foreign = b.run_of(2, 0, "y");
  foreign.transfer = {5, 5};
  to_coordinator::Tokens many;
  many.runs.assign(4096, foreign);
  b.from(2, many);
  CHECK(b.status().totals.stale == 4096);
  b.tokens(2, 0, "z", Finish::kStop);
  CHECK(client->text == "z.");
}

TEST_CASE("the end without a word of Owned: a hand-off that was one, and one that was not needed") {
  for (const bool granted : {false, true}) {
    Bench b({Term{1}, PdMode::kAlways});
    b.join(Role::kPrefill, 1);
    b.join(Role::kDecode, 2);
    auto client = b.submit("ABC", 1);
    if (granted) b.grant(2);
    b.tokens(2, 0, "", Finish::kStop);
    REQUIRE(client->ended);
    CHECK(client->ended->finish == Finish::kStop);
    CHECK(client->ended->remote_prefill == granted);
    for (const WorkerStatus& w : b.status().workers) CHECK(w.in_flight == 0);
  }
}

}  // namespace headrace::coordinator
