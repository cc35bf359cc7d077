// Clients that leave and come back, and the coordinator's own end:
// coordinator/dispatcher_resume.cc.
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

struct ResumeBench : Bench {
  explicit ResumeBench(uint32_t context = 512) {
    auto who = hello(Role::kBoth, 1);
    who.card.context = context;
    who.kv_blocks = context;
    join(who, 1);
  }
  std::shared_ptr<Client> begin(uint64_t id, uint64_t owner = 1, bool resumable = true) {
    Submit m;
    m.request = {id, id};
    m.prompt = "A";
    m.resumable = resumable;
    m.owner = owner;
    return submit(std::move(m));
  }
  // A client that has everything before `next` already.
  std::shared_ptr<Client> resume(uint64_t id, uint32_t next, uint64_t owner) {
    auto client = std::make_shared<Client>();
    client->ids.assign(next, 0);
    tell(Resume{{id, id}, next, owner, Ref<ClientPort>(strand, client)});
    return client;
  }
  bool cancel(uint64_t id) {
    struct Keep final : ReplyPort<bool> {
      void on(bool b) override { kept = b; }
      std::optional<bool> kept;
    };
    auto keep = std::make_shared<Keep>();
    tell(AskCancel{{id, id}, Ref<ReplyPort<bool>>(strand, keep)});
    REQUIRE(keep->kept);
    return *keep->kept;
  }
};

struct Drained final : ReplyPort<bool> {
  void on(bool all) override { kept = all; }
  std::optional<bool> kept;
};

}  // namespace

TEST_CASE("a resumable request goes on without its client, and gives what was missed") {
  ResumeBench b;
  auto first = b.begin(1);
  b.tokens(1, 0, "abc");
  b.tell(Detach{{1, 1}, 1});
  b.tokens(1, 3, "def");
  b.live(5s);
  CHECK(b.status().running == 1);
  CHECK(first->text == "abc");
  auto second = b.resume(1, 2, 2);
  CHECK(second->text == "cdef");
  b.tokens(1, 6, "g", Finish::kStop);
  CHECK(second->text == "cdefg.");
  REQUIRE(second->ended);
  CHECK(second->ended->finish == Finish::kStop);
  CHECK_FALSE(second->broken);
  CHECK(b.status().totals.resumed == 1);
  // The end is kept: any position gives exactly what follows it, and the same end.
  const std::string all = "abcdefg";
  for (uint32_t next = 0; next <= 7; ++next) {
    auto again = b.resume(1, next, 3 + next);
    CHECK(again->text == all.substr(next) + ".");
    REQUIRE(again->ended);
    CHECK(again->ended->usage.completion_tokens == 7);
    CHECK_FALSE(again->broken);
  }
  const ClusterStatus s = b.status();
  CHECK(s.running + s.waiting + s.draining == 0);
}

TEST_CASE("what cannot be resumed is not found, all the same") {
  ResumeBench b;
  b.begin(1);
  b.tokens(1, 0, "abc");
  b.begin(2, 1, false);
  std::string message;
  for (const auto& [id, next] : {std::pair<uint64_t, uint32_t>{1, 4}, {2, 0}, {3, 0}}) {
    auto client = b.resume(id, 0, 9);
    if (id == 1) client = b.resume(id, next, 9);
    REQUIRE(client->ended);
    CHECK(client->ended->status.code == Errc::kNotFound);
    if (message.empty()) message = client->ended->status.message;
    CHECK(client->ended->status.message == message);
  }
}

TEST_CASE("a second connection takes the stream over, the first is told") {
  ResumeBench b;
  auto first = b.begin(1);
  b.tokens(1, 0, "abc");
  b.tell(Acknowledge{{1, 1}, 2, 1});
  auto second = b.resume(1, 1, 2);
  REQUIRE(first->ended);
  CHECK(first->ended->finish == Finish::kCancelled);
  CHECK(first->ended->status.message == "taken over by another connection");
  CHECK(second->text == "bc");
  // What the first still says opens no credit, breaks nothing, and does not end the request.
  b.tell(Acknowledge{{1, 1}, 99, 1});
  b.tell(Acknowledge{{1, 1}, 0, 1});
  b.tell(Detach{{1, 1}, 1});
  b.tokens(1, 3, "d", Finish::kStop);
  CHECK(second->text == "bcd.");
  CHECK_FALSE(first->broken);
  CHECK_FALSE(second->broken);
}

TEST_CASE("a known id is refused, and nothing of the other is disturbed") {
  ResumeBench b;
  auto first = b.begin(1, 1);
  auto second = b.begin(1, 2);
  REQUIRE(second->ended);
  CHECK(second->ended->status.code == Errc::kInvalid);
  CHECK(second->ended->status.message.find("resume") != std::string::npos);
  b.tell(Detach{{1, 1}, 2});  // the refused one's connection closes
  b.tell(Abandon{{1, 1}, 2});
  b.tokens(1, 0, "x");
  CHECK(first->text == "x");
  b.tokens(1, 1, "", Finish::kStop);
  REQUIRE(first->ended);
  CHECK(b.begin(1, 3)->ended);  // its end is kept: still known
  // Without that an id is free at once.
  auto plain = b.begin(2, 1, false);
  b.tokens(1, 0, "y", Finish::kStop);
  REQUIRE(plain->ended);
  CHECK_FALSE(b.begin(2, 1, false)->ended);
}

TEST_CASE("a client that does not come back in time: cancelled, and the record says so") {
  ResumeBench b;
  b.begin(1);
  b.tokens(1, 0, "ab");
  b.tell(Detach{{1, 1}, 1});
  b.live(kResumeWithin - 1s);
  CHECK(b.status().running == 1);
  b.live(2s);
  CHECK(b.status().running == 0);
  CHECK(b.last<to_worker::Cancel>(1) != nullptr);
  auto late = b.resume(1, 0, 2);
  REQUIRE(late->ended);
  CHECK(late->ended->finish == Finish::kCancelled);
  CHECK(late->text == "ab.");
  // Without `resumable` a lost client is a cancel at once.
  b.begin(2, 7, false);
  b.tell(Detach{{2, 2}, 6});  // not its owner
  CHECK(b.status().running == 1);
  b.tell(Detach{{2, 2}, 7});
  CHECK(b.status().running == 0);
}

TEST_CASE("ends are kept for a while, and not too many of them") {
  ResumeBench b;
  for (uint64_t id = 1; id <= kRetainedMax + 1; ++id) {
    b.begin(id);
    b.tokens(1, 0, "x", Finish::kStop);
  }
  CHECK(b.resume(1, 0, 2)->ended->status.code == Errc::kNotFound);  // the oldest
  CHECK(b.resume(2, 0, 2)->text == "x.");
  b.idle(kRetainedFor + 1s);
  CHECK(b.resume(3, 0, 2)->ended->status.code == Errc::kNotFound);
}

TEST_CASE("decoding runs no more than so far ahead of its client, and goes on when it follows") {
  ResumeBench b(8192);
  auto client = b.begin(1);
  constexpr uint32_t kTaken = (kBehindMax - kBehindFirst) / kBehindGrowth + 1;
  uint32_t made = 0;
  for (; made < kTaken; made += 32) {
    b.tokens(1, made, std::string(32, 'x'));
    b.tell(Acknowledge{{1, 1}, made + 32, 1});
  }
  b.tell(Detach{{1, 1}, 1});
  b.tokens(1, made, std::string(kBehindMax - 1, 'x'));
  CHECK(b.status().running == 1);
  b.tokens(1, made + kBehindMax - 1, "y");
  CHECK(b.status().running == 0);  // no worker holds it
  CHECK(b.status().waiting == 1);
  CHECK(b.status().workers.at(0).in_flight == 0);
  auto second = b.resume(1, made, 2);
  for (uint32_t at = 64; at <= kBehindMax / 2; at += 64) {
    CHECK(b.count<to_worker::Prepare>(1) == 1);
    b.tell(Acknowledge{{1, 1}, made + at, 2});
  }
  REQUIRE(b.count<to_worker::Prepare>(1) == 2);
  CHECK(b.last<to_worker::Prepare>(1)->generated == made + kBehindMax);
  b.tokens(1, made + kBehindMax, "z", Finish::kStop);
  for (uint32_t at = kBehindMax / 2 + 64; at <= kBehindMax; at += 64)
    b.tell(Acknowledge{{1, 1}, made + at, 2});
  REQUIRE(second->ended);
  CHECK(second->ids.size() == made + kBehindMax + 1);
  CHECK((second->text == std::string(kBehindMax - 1, 'x') + "yz."));
}

TEST_CASE("clients that take nothing share what may be made for them; one that takes goes on") {
  ResumeBench b;
  auto client = b.begin(1);
  b.tokens(1, 0, std::string(kBehindFirst - 1, 'x'));
  CHECK(b.status().running == 1);
  b.tokens(1, kBehindFirst - 1, "y");  // alone: as many as the first may be
  CHECK(b.status().waiting == 1);
  b.tell(Acknowledge{{1, 1}, 1, 1});
  CHECK(b.status().waiting == 1);  // it took too little
  b.tell(Acknowledge{{1, 1}, kBehindFirst, 1});
  CHECK(b.status().running == 1);
  b.tell(Abandon{{1, 1}, 1});
  constexpr uint64_t kMany = 2 * kBehindShared / kBehindFirst;  // of whom each has half of that
  for (uint64_t id = 11; id < 11 + kMany; ++id) {
    b.begin(id);
    b.tokens(1, 0, "a");
  }
  CHECK(b.status().running == kMany);
  const auto id = b.last<to_worker::Prepare>(1)->transfer;
  b.tokens(1, 1, std::string(kBehindFirst / 2 - 1, 'x'));
  CHECK(b.status().running == kMany - 1);
  CHECK(b.last<to_worker::Cancel>(1)->transfer == id);
}

TEST_CASE("an id is enough to end a request") {
  ResumeBench b;
  auto client = b.begin(1);
  CHECK(b.cancel(1));
  REQUIRE(client->ended);
  CHECK(client->ended->finish == Finish::kCancelled);
  CHECK_FALSE(b.cancel(1));
  CHECK_FALSE(b.cancel(77));
  CHECK(b.resume(1, 0, 2)->ended->finish == Finish::kCancelled);
}

TEST_CASE("an id is enough to drop an answer that was made and not fetched") {
  ResumeBench b;
  SUBCASE("kept for a resume") {
    b.begin(1);
    b.tell(Detach{{1, 1}, 1});
    b.tokens(1, 0, "abc", Finish::kStop);
    CHECK(b.cancel(1));
    const auto late = b.resume(1, 0, 2);
    CHECK(late->ended->status.code == Errc::kNotFound);
    CHECK(late->ended->status.message.find("do not outlive") != std::string::npos);
  }
  SUBCASE("its client takes nothing") {
    for (const bool resumable : {false, true}) {
      const uint64_t id = resumable ? 2 : 1;
      auto client = b.begin(id, 1, resumable);
      b.tokens(1, 0, std::string(kUnacknowledgedMax + 2, 'x'), Finish::kStop);
      CHECK(b.status().draining == 1);
      CHECK(b.cancel(id));
      REQUIRE(client->ended);
      CHECK(client->ended->finish == Finish::kCancelled);
      CHECK_FALSE(client->broken);
    }
  }
  CHECK(b.dispatcher->requests().empty());
  CHECK_FALSE(b.cancel(1));
}

TEST_CASE("draining: nothing new, what runs goes on, the answer comes when all are gone") {
  ResumeBench b;
  auto running = b.begin(1, 1, false);
  auto drained = std::make_shared<Drained>();
  b.tell(BeginDrain{30s, Ref<ReplyPort<bool>>(b.strand, drained)});
  CHECK_FALSE(b.status().ready);
  CHECK(b.status().leaving);
  auto late = b.begin(2);
  REQUIRE(late->ended);
  CHECK(late->ended->status.code == Errc::kUnavailable);
  CHECK(late->ended->status.message == "the coordinator is shutting down");
  b.live(5s);
  CHECK_FALSE(drained->kept);
  b.tokens(1, 0, "x", Finish::kStop);
  CHECK(running->text == "x.");
  b.live(200ms);
  REQUIRE(drained->kept);
  CHECK(*drained->kept);
}

TEST_CASE("the end of the grace ends the rest, each by name; the shorter grace holds") {
  ResumeBench b;
  auto running = b.begin(1, 1, false);
  auto slow = b.begin(2, 2, false);
  b.tokens(1, 0, std::string(100, 'x'), Finish::kStop);  // of 2: its client takes 64
  auto queued = b.submit(std::string(500, 'q'), 3);
  auto drained = std::make_shared<Drained>();
  b.tell(BeginDrain{30s, Ref<ReplyPort<bool>>(b.strand, drained)});
  b.tell(BeginDrain{1s, Ref<ReplyPort<bool>>(b.strand, std::make_shared<Drained>())});
  b.live(1500ms);
  for (const auto& client : {running, slow, queued}) {
    REQUIRE(client->ended);
    CHECK(client->ended->finish == Finish::kError);
    CHECK(client->ended->status.code == Errc::kUnavailable);
    CHECK_FALSE(client->broken);
  }
  CHECK(slow->text == std::string(64, 'x'));
  REQUIRE(drained->kept);
  CHECK_FALSE(*drained->kept);
  // Nothing to do: the answer comes at once.
  Bench idle;
  auto none = std::make_shared<Drained>();
  idle.tell(BeginDrain{0s, Ref<ReplyPort<bool>>(idle.strand, none)});
  REQUIRE(none->kept);
  CHECK(*none->kept);
}

}  // namespace headrace::coordinator
