// Answers of workers to what they were told: coordinator/dispatcher_protocol.cc.
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

struct PairBench : Bench {
  PairBench() : Bench({Term{1}, PdMode::kAlways}) {
    join(Role::kPrefill, 1);
    join(Role::kDecode, 2);
  }
  GrantedBlocks right() {
    const auto& p = *last<to_worker::Prepare>(2);
    GrantedBlocks g{{2, 2}, hello(Role::kDecode, 2).kv, {1, 1}, {}};
    for (uint32_t block = 0; block * 16 < p.prompt.size(); ++block)
      g.blocks.push_back({BlockId{block}, Generation{++generation}});
    return g;
  }
  void answer(GrantedBlocks granted) {
    const auto& p = *last<to_worker::Prepare>(2);
    from(2, to_coordinator::Grant{p.transfer, p.attempt, std::move(granted)});
  }
};

}  // namespace

TEST_CASE("grants that cannot be: nobody is sent there, the worker is left alone for a while") {
  for (const int kind : {0, 1, 2, 3, 4, 5, 6}) {
    CAPTURE(kind);
    PairBench b;
    b.submit(std::string(40, 'a'), 1);
    GrantedBlocks g = b.right();
    REQUIRE(g.blocks.size() == 3);
    if (kind == 0) g.endpoint = {"10.0.0.1", 80};  // P would dial a stranger
    if (kind == 1) g.endpoint.port = 0;
    if (kind == 2) g.decode = {7, 7};
    if (kind == 3) g.blocks[1] = g.blocks[0];
    if (kind == 4) g.blocks[1].block = BlockId{100};
    if (kind == 5) g.blocks.pop_back();
    if (kind == 6) g.blocks.clear();
    b.answer(g);
    CHECK(b.count<to_worker::Start>(1) == 0);
    CHECK(b.status().totals.attempts_failed == 1);
    CHECK(b.status().waiting == 1);  // distrusted: not asked again at once
    b.live(kDistrust + 200ms);
    CHECK(b.status().running == 1);
  }
}

TEST_CASE("a block that is being filled cannot be granted again") {
  PairBench b;
  b.submit("abcde", 1);
  const GrantedBlocks first = b.right();
  b.answer(first);
  CHECK(b.count<to_worker::Start>(1) == 1);
  b.submit("fghij", 2);
  GrantedBlocks second = b.right();
  second.blocks = first.blocks;
  b.answer(second);
  CHECK(b.count<to_worker::Start>(1) == 1);
  // Once owned it is the decode worker's own affair; freed, it has another generation.
  PairBench c;
  c.submit("abcde", 1);
  c.answer(first);
  c.prefill_done(1);
  c.owned(2);
  c.tokens(2, 0, "x", Finish::kStop);
  c.submit("fghij", 2);
  GrantedBlocks again = c.right();
  again.blocks = {{first.blocks[0].block, Generation{77}}};
  c.answer(again);
  CHECK(c.count<to_worker::Start>(1) == 2);
}

TEST_CASE("blocks before the grant are those that the decode worker has") {
  PairBench b;
  b.submit(std::string(40, 'a'), 1);
  GrantedBlocks g = b.right();
  g.first_block = 2;
  g.blocks.erase(g.blocks.begin(), g.blocks.begin() + 2);
  b.answer(g);
  REQUIRE(b.count<to_worker::Start>(1) == 1);
  CHECK(b.last<to_worker::Start>(1)->grant == g);
}

TEST_CASE("nothing to hand over: the decode worker begins without a grant") {
  PairBench b;
  auto client = b.submit("abcde", 1);
  b.owned(2);
  CHECK(b.status().workers.at(0).in_flight == 0);
  b.tokens(2, 0, "x", Finish::kStop);
  CHECK(client->text == "x.");
  CHECK_FALSE(client->ended->remote_prefill);
  CHECK(b.count<to_worker::Start>(1) == 0);
}

TEST_CASE("a repeated grant changes nothing, another one means that the transfer was lost") {
  PairBench b;
  b.submit("abcde", 1);
  const GrantedBlocks g = b.right();
  b.answer(g);
  b.answer(g);
  CHECK(b.count<to_worker::Start>(1) == 1);
  CHECK(b.status().totals.attempts_failed == 0);
  GrantedBlocks other = g;
  other.key = {2, 2};
  b.answer(other);
  CHECK(b.status().totals.attempts_failed == 1);
}

TEST_CASE("a pair that failed to hand over is left alone for a while, other pairs are not") {
  Bench b({Term{1}, PdMode::kAlways});
  b.join(Role::kPrefill, 1);
  b.join(Role::kDecode, 2);
  auto first = b.submit("abcde", 1);
  b.grant(2);
  const auto s = *b.last<to_worker::Start>(1);
  b.from(1, to_coordinator::AttemptFailed{s.transfer, s.attempt,
                                          error(Errc::kDisconnected, "no way there")});
  // Another request that has not failed anywhere avoids the pair as well.
  b.submit("fghij", 2);
  CHECK_FALSE(b.last<to_worker::Prepare>(2)->remote_prefill);
  b.join(Role::kDecode, 3);
  b.submit("klmno", 3);
  CHECK(b.last<to_worker::Prepare>(3)->remote_prefill);
  b.live(kPairBackoffMin + 200ms);
  b.lose(3);
  CHECK(b.last<to_worker::Prepare>(2)->remote_prefill);
}

// However it shows: the deadline is the client's, and over.
TEST_CASE("a request whose deadline runs out in the hand-off is nobody's fault") {
  for (const Errc how : {Errc::kDeadline, Errc::kDisconnected, Errc::kOverloaded, Errc::kOk}) {
    CAPTURE(name(how));
    Bench b({Term{1}, PdMode::kAlways});
    b.join(Role::kPrefill, 1);
    b.join(Role::kDecode, 2);
    Submit m;
    m.request = {1, 1};
    m.prompt = "abcde";
    m.deadline = 30ms;
    auto client = b.submit(std::move(m));
    b.grant(2);
    const auto s = *b.last<to_worker::Start>(1);
    b.live(how == Errc::kOk ? 200ms : 40ms);  // kOk: the sweep sees it first
    if (how == Errc::kOverloaded)
      b.from(1, to_coordinator::Refuse{s.transfer, s.attempt, error(how, "no room")});
    else if (how != Errc::kOk)
      b.from(1, to_coordinator::AttemptFailed{s.transfer, s.attempt, error(how, "it ran out")});
    REQUIRE(client->ended);
    CHECK(client->ended->status.code == Errc::kDeadline);
    CHECK(client->ended->status.message.find("within 30 ms") != std::string::npos);
    CHECK(b.status().totals.attempts_failed == 0);
    CHECK(b.count<to_worker::Prepare>(2) == 1);  // nothing is tried anew
    REQUIRE(b.last<to_worker::Cancel>(2));
    CHECK(b.last<to_worker::Cancel>(2)->reason.code == Errc::kCancelled);
    b.submit("fghij", 2);
    REQUIRE(b.count<to_worker::Prepare>(2) == 2);
    CHECK(b.last<to_worker::Prepare>(2)->remote_prefill);
  }
}

namespace {

// With auto, a prefill worker (1) that computes at once, and a decode worker (2) that takes a
// second for a token: only the link speaks for it.
struct LinkBench : Bench {
  LinkBench() : Bench({Term{1}, PdMode::kAuto}) {
    for (const auto& [role, number] : {std::pair{Role::kPrefill, 1}, std::pair{Role::kDecode, 2}}) {
      to_coordinator::Register who = hello(role, static_cast<uint64_t>(number));
      who.card.cost.kv_token_bytes = 64'000;
      who.card.cost.flops_per_token = 1'000'000'000;
      who.limits.f32_flops_per_second = role == Role::kDecode ? 1e9 : 1e15;
      join(who, static_cast<uint64_t>(number));
    }
  }
  // One request of 5 tokens to its end. True: by way of the prefill worker.
  bool hands_over(Duration wire = {}) {
    auto client = submit("ABCDE", ++asked, 1);
    const bool remote = last<to_worker::Prepare>(2)->remote_prefill;
    if (remote) {
      grant(2);
      prefill_done(1);
      owned(2, 4 * 64'000, wire);
    }
    tokens(2, 0, "x", Finish::kLength);
    CHECK(client->ended.has_value());
    acknowledge(asked, 1);
    return remote;
  }
  uint64_t asked = 0;
};

}  // namespace

TEST_CASE("auto learns what a link does to hand-offs, and when it has healed") {
  LinkBench b;
  CHECK(b.hands_over(10ms));  // nothing is known of it
  CHECK(b.hands_over(9s));    // slow, the mean is 6 s: more than the 4 s that it saves
  CHECK_FALSE(b.hands_over());
  // Each of those that follow puts 50 ms aside; what is missing for a trial are 2 s.
  const auto until_tried = [&](Duration wire) {
    for (int n = 0; n < 200; ++n) {
      b.live(2s);
      if (b.hands_over(wire)) return n;
    }
    return 200;
  };
  const int first = until_tried(9s);
  CHECK(first > 30);
  CHECK(first < 60);
  CHECK_FALSE(b.hands_over());
  CHECK(until_tried(10ms) > first);                        // it has become slower in the mean
  for (int i = 0; i < 10; ++i) CHECK(b.hands_over(10ms));  // healed
  // What was learned of a worker goes with it.
  CHECK(b.hands_over(500s));
  CHECK_FALSE(b.hands_over());
  b.lose(1);
  to_coordinator::Register again = hello(Role::kPrefill, 3);
  again.card.cost = {0, 64'000, 1'000'000'000};
  again.limits.f32_flops_per_second = 1e15;
  b.join(again, 3);
  auto client = b.submit("ABCDE", 1000, 1);
  CHECK(b.last<to_worker::Prepare>(2)->remote_prefill);
}

}  // namespace headrace::coordinator
