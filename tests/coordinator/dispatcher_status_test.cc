// Readiness, states of workers, and what probes see: coordinator/dispatcher_status.cc.
#include "protocol/prefix_hash.h"
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

struct Seen final : Probes {
  void ended(const Ended& end, bool dispatched) override {
    ends.push_back(std::string(name(end.finish)) + (dispatched ? "" : ", never dispatched"));
  }
  void first_token(double) override { ++firsts; }
  void tokens(uint32_t n, double) override { later += n; }
  void stage(std::string_view what, double) override { stages.emplace_back(what); }
  void attempt_failed(Errc) override { ++failures; }
  void worker_lost(WorkerId worker, std::string_view how) override {
    lost.push_back(std::to_string(raw(worker)) + " " + std::string(how));
  }
  void routed(std::string_view reason, uint32_t cached) override {
    routes.push_back(std::string(reason) + " " + std::to_string(cached));
  }
  void status(const ClusterStatus& s) override { last = s; }
  std::vector<std::string> ends, stages, routes, lost;
  int firsts = 0, failures = 0;
  uint32_t later = 0;
  ClusterStatus last;
};

}  // namespace

TEST_CASE("ready is when some route gives a token; with pd always it takes both pools") {
  Bench b({Term{1}, PdMode::kAlways});
  CHECK(b.status().not_ready == "no worker has joined");
  b.join(Role::kDecode, 1);
  CHECK(b.status().not_ready == "no worker that prefills takes requests");
  CHECK_FALSE(b.submit("AB", 1)->ended);  // it is answered nevertheless
  b.join(Role::kPrefill, 2);
  CHECK(b.status().ready);
  b.lose(1);
  CHECK(b.status().not_ready == "no worker that decodes is left: worker decode-1 was lost: closed");
  b.join(Role::kDecode, 3);
  CHECK(b.status().ready);
  b.lose(2);
  CHECK_FALSE(b.status().ready);
  Bench automatic;
  automatic.join(Role::kDecode, 1);
  CHECK(automatic.status().ready);
}

TEST_CASE("the pages know at once what a client was told") {
  const auto seen = std::make_shared<Seen>();
  DispatcherOptions options;
  options.probes = seen;
  Bench b(options);
  b.join(Role::kBoth, 1);
  CHECK_FALSE(seen->last.ready);  // no sweep yet
  CHECK(b.status().ready);
  CHECK(seen->last.ready);
  CHECK(seen->last.workers.size() == 1);
}

TEST_CASE("probes hear how a worker was lost") {
  const auto seen = std::make_shared<Seen>();
  DispatcherOptions options;
  options.probes = seen;
  Bench b(options);
  for (const uint64_t w : {1, 2, 3, 4}) b.join(Role::kBoth, w);
  b.beats[1].draining = true;
  b.live(200ms);
  b.lose(1);
  b.lose(2);
  b.incarnations.erase(3);  // says nothing more
  b.live(kSilence + 1s);
  b.tell(WorkerLost{WorkerId{4}, error(Errc::kInvalid, "a frame that is none")});
  b.live(100ms);
  CHECK(seen->lost ==
        std::vector<std::string>{"1 drained", "2 disconnected", "3 silent", "4 rule"});
  CHECK(seen->last.workers.empty());
}

TEST_CASE("a worker that drains gets nothing new; what it gives back does not count as a failure") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("AB", 1);
  b.beats[1].draining = true;
  b.live(200ms);
  CHECK(b.status().workers.at(0).state == "draining");
  CHECK_FALSE(b.status().ready);
  auto waits = b.submit("CD", 2);
  CHECK(b.status().waiting == 1);
  for (uint64_t w = 2; w <= 6; ++w) {
    b.join(Role::kBoth, w);  // the last to come drains as well
    b.beats[w].draining = true;
    b.live(200ms);
    const auto p = *b.last<to_worker::Prepare>(w - 1);
    b.from(w - 1, to_coordinator::AttemptFailed{p.transfer, p.attempt,
                                                error(Errc::kUnavailable, "draining")});
    b.live(200ms);
  }
  CHECK_FALSE(client->ended);  // five attempts failed, none of them counts
  CHECK_FALSE(waits->ended);
}

TEST_CASE("numbers of workers and of the coordinator itself are passed on") {
  DispatcherOptions options;
  options.metrics = {"127.0.0.1", 8081};
  Bench b(options);
  b.join(Role::kBoth, 1);
  b.beats[1].decode = {0.5, 0.25, Wall::kDram};
  b.live(200ms);
  const ClusterStatus s = b.status();
  CHECK(s.metrics == Endpoint{"127.0.0.1", 8081});
  CHECK(s.workers.at(0).decode.wall == Wall::kDram);
  CHECK_FALSE(s.leaving);
}

TEST_CASE("probes see each request once, its stages, its route, its tokens") {
  auto seen = std::make_shared<Seen>();
  DispatcherOptions options;
  options.probes = seen;
  Bench b(options);
  b.join(Role::kBoth, 1);
  b.submit("AB", 1);
  b.tokens(1, 0, "x");
  b.tokens(1, 1, "yz");
  b.tokens(1, 3, "", Finish::kStop);
  b.submit("", 2);
  b.submit("AB", 3);
  b.tell(Abandon{{3, 3}});
  b.submit("AB", 4);
  b.lose(1);
  b.live(100ms);
  CHECK(seen->ends == std::vector<std::string>{"stop", "error, never dispatched", "cancelled"});
  CHECK(seen->firsts == 1);
  CHECK(seen->later == 2);
  CHECK(seen->failures == 1);
  CHECK(seen->lost == std::vector<std::string>{"1 disconnected"});
  CHECK(seen->routes == std::vector<std::string>(3, "only_choice 0"));
  CHECK(seen->stages == std::vector<std::string>{"tokenize", "queue", "prefill", "decode",
                                                 "tokenize", "tokenize", "queue", "tokenize",
                                                 "queue"});
  CHECK(seen->last.totals.submitted == 4);
}

TEST_CASE("what a worker has in its cache brings it the request") {
  auto seen = std::make_shared<Seen>();
  DispatcherOptions options;
  options.probes = seen;
  Bench b(options);
  auto one = hello(Role::kBoth, 1), two = hello(Role::kBoth, 2);
  for (auto* who : {&one, &two}) {
    who->card.cost.flops_per_token = 1'000'000'000;
    who->limits.f32_flops_per_second = 1e12;
  }
  b.join(one, 1);
  b.join(two, 2);
  const CacheKey key = b.last<to_worker::Welcome>(2)->cache_key;
  CHECK(key == b.last<to_worker::Welcome>(1)->cache_key);
  CHECK(bool(key));
  const std::string text(40, 'a');
  const std::vector<Token> ids(40, 'a');
  const auto tell = [&](uint64_t from, uint64_t salt, std::vector<size_t> blocks) {
    to_coordinator::Beat beat;
    beat.incarnation = {2, 2};
    beat.prefix_from = from;
    const auto chain = prefix_chain(key, salt, ids, 16);
    for (const size_t block : blocks)
      beat.prefix_events.push_back({PrefixEvent::Kind::kAdded, chain.at(block).brief()});
    b.from(2, beat);
  };
  tell(5, 0, {0});  // events 0 to 4 are missing
  CHECK(b.status().totals.prefix_gaps == 1);
  b.live(300ms);
  CHECK(b.last<to_worker::Ping>(2)->prefix_seen == 0);
  tell(0, 0, {0, 1});
  b.live(300ms);
  CHECK(b.last<to_worker::Ping>(2)->prefix_seen == 2);
  CHECK(b.last<to_worker::Ping>(1)->prefix_seen == 0);
  b.submit(text, 1);
  CHECK(seen->routes.back() == "prefix 32");
  CHECK(b.last<to_worker::Prepare>(2) != nullptr);
  CHECK(b.last<to_worker::Prepare>(2)->cache_salt == 0);
  // Another tenant shares nothing.
  Submit salted;
  salted.request = {2, 2};
  salted.prompt = text;
  salted.cache_salt = "tenant";
  b.submit(std::move(salted));
  REQUIRE(b.last<to_worker::Prepare>(1));
  CHECK(b.last<to_worker::Prepare>(1)->cache_salt == cache_salt(key, std::string("tenant")));
  CHECK(b.last<to_worker::Prepare>(1)->cache_salt != 0);
  CHECK(seen->routes.back() == "time 0");
}

}  // namespace headrace::coordinator
