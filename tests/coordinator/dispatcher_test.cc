#include "coordinator/dispatcher.h"
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

#include <limits>

namespace headrace::coordinator {
using namespace fakes;

TEST_CASE("a local answer goes from submit to its end") {
  Bench b;
  b.join(Role::kBoth, 1);
  CHECK(b.status().ready);
  auto client = b.submit("Hi", 1, 3);
  const auto* p = b.last<to_worker::Prepare>(1);
  REQUIRE(p);
  CHECK(p->prompt == std::vector<Token>{'H', 'i'});
  CHECK(p->max_tokens == 3);
  CHECK(p->generated == 0);
  CHECK(p->sampling.seed == 5);
  CHECK(p->end_tokens == std::vector<Token>{257});
  CHECK_FALSE(p->remote_prefill);
  CHECK(p->deadline == 10min);
  CHECK(b.status().running == 1);

  b.strand->advance(50ms);
  b.tokens(1, 0, "a");
  b.tokens(1, 1, "bc", Finish::kLength);
  CHECK(client->text == "abc.");
  REQUIRE(client->ended);
  CHECK(client->ended->finish == Finish::kLength);
  CHECK(client->ended->usage.prompt_tokens == 2);
  CHECK(client->ended->usage.completion_tokens == 3);
  CHECK(client->ended->timing.first_token == doctest::Approx(0.05));
  CHECK_FALSE(client->broken);
  const ClusterStatus after = b.status();
  CHECK(after.running + after.waiting + after.draining == 0);
  CHECK(after.workers.at(0).in_flight == 0);
  CHECK(after.totals.stopped == 1);
}

TEST_CASE("every refusal names its limit") {
  Bench b;
  b.join(Role::kBoth, 1);
  const auto refused = [&](Submit m) {
    auto client = b.submit(std::move(m));
    REQUIRE(client->ended);
    CHECK(client->ended->finish == Finish::kError);
    return client->ended->status;
  };
  const auto with = [](Prompt prompt) {
    Submit m;
    m.request = {9, 9};
    m.prompt = std::move(prompt);
    return m;
  };
  CHECK(refused(with("")).code == Errc::kInvalid);
  CHECK(refused(with(std::vector<Token>{})).code == Errc::kInvalid);
  CHECK(refused(with(std::vector<ChatMessage>{})).code == Errc::kInvalid);
  CHECK(refused(with(std::vector<Token>{-1})).message.find("-1") != std::string::npos);
  CHECK(refused(with(std::vector<Token>{258})).message.find("258") != std::string::npos);
  CHECK(refused(with(std::string(kPromptBytesMax + 1, 'x'))).message.find("1048576") !=
        std::string::npos);
  const Status over = refused(with(std::string(600, 'a')));
  CHECK(over.code == Errc::kContextExceeded);
  CHECK(over.message == "prompt has 600 tokens, the context holds 512");
  CHECK(refused(with(std::string(512, 'a'))).code == Errc::kContextExceeded);
  Submit none = with("A");
  none.max_tokens = 0;
  CHECK(refused(none).message.find("max_tokens") != std::string::npos);
  Submit hot = with("A");
  hot.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  CHECK(refused(hot).code == Errc::kInvalid);
  Submit past = with("A");
  past.deadline = Duration{0};
  CHECK(refused(past).code == Errc::kInvalid);
  CHECK(b.count<to_worker::Prepare>(1) == 0);
  CHECK(b.status().totals.refused == 11);
  // A leading token makes an empty text a prompt of one.
  Submit bos = with("");
  bos.special = true;
  CHECK_FALSE(b.submit(bos)->ended);
  CHECK(b.last<to_worker::Prepare>(1)->prompt == std::vector<Token>{256});
}

TEST_CASE("the answer is clamped at the context") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.submit(std::string(500, 'a'), 1, 100);
  CHECK(b.last<to_worker::Prepare>(1)->max_tokens == 12);
  b.submit(std::string(511, 'a'), 2);
  CHECK(b.last<to_worker::Prepare>(1)->max_tokens == 1);
}

TEST_CASE("the answer is clamped at what the largest worker holds, or refused by name") {
  Bench b;
  to_coordinator::Register small = hello(Role::kBoth, 1);
  small.kv_blocks = 8;  // 128 tokens of the context's 512
  b.join(small, 1);
  b.submit(std::string(100, 'a'), 1);
  REQUIRE(b.last<to_worker::Prepare>(1));
  CHECK(b.last<to_worker::Prepare>(1)->max_tokens == 28);
  b.tokens(1, 0, "x", Finish::kStop);
  auto never = b.submit(std::string(100, 'a'), 2, 29);
  REQUIRE(never->ended);
  CHECK(never->ended->status.code == Errc::kContextExceeded);
  CHECK(never->ended->status.message ==
        "prompt and max_tokens of 29 need 9 KV blocks, no worker holds more than 8");
  // With a larger worker beside it, the small one is not asked for what it would refuse.
  b.join(Role::kBoth, 2);
  const int asked = b.count<to_worker::Prepare>(1);
  for (uint64_t id = 3; id < 8; ++id) b.submit(std::string(100, 'a'), id, 29);
  CHECK(b.count<to_worker::Prepare>(1) == asked);
  CHECK(b.count<to_worker::Prepare>(2) == 5);
}

TEST_CASE("one id, one request") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto first = b.submit("A", 7);
  auto second = b.submit("B", 7);
  REQUIRE(second->ended);
  CHECK(second->ended->status.code == Errc::kInvalid);
  b.tokens(1, 0, "x", Finish::kStop);
  CHECK(first->text == "x.");
  CHECK_FALSE(b.submit("B", 7)->ended);  // free again
}

TEST_CASE("requests wait for a worker and its tokenizer, in order") {
  Bench b;
  auto one = b.submit("A", 1);
  auto two = b.submit("BB", 2);
  CHECK(b.status().waiting == 2);
  CHECK_FALSE(b.status().ready);
  b.live(5s);
  b.join(Role::kBoth, 1);
  CHECK(b.count<to_worker::Prepare>(1) == 2);
  CHECK(b.last<to_worker::Prepare>(1)->prompt.size() == 2);
  CHECK_FALSE(one->ended);
  // What turns out too long only now is refused now.
  Bench late;
  auto long_one = late.submit(std::string(600, 'a'), 1);
  late.join(Role::kBoth, 1);
  REQUIRE(long_one->ended);
  CHECK(long_one->ended->status.code == Errc::kContextExceeded);
}

TEST_CASE("the queue has a length and a wait") {
  Bench b;
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 1; i <= kQueueMax; ++i) clients.push_back(b.submit("A", i));
  auto over = b.submit("A", kQueueMax + 1);
  REQUIRE(over->ended);
  CHECK(over->ended->status.code == Errc::kOverloaded);
  CHECK(over->ended->status.message.find("1024") != std::string::npos);
  Submit known;
  known.request = {kQueueMax + 2, kQueueMax + 2};
  known.prompt = "A";
  known.known = true;
  clients.push_back(b.submit(std::move(known)));  // strangers take no place from it
  CHECK_FALSE(clients.back()->ended);
  b.live(kQueueWait - 1s);
  CHECK_FALSE(clients[0]->ended);
  b.live(2s);
  for (const auto& client : clients) {
    REQUIRE(client->ended);
    CHECK(client->ended->status.code == Errc::kUnavailable);
    CHECK(client->ended->status.message == "no worker has joined");
  }
  CHECK(b.status().waiting == 0);
}

TEST_CASE("nothing overtakes a request that has to wait for room") {
  Bench b;
  to_coordinator::Register small = hello(Role::kBoth, 1);
  small.kv_blocks = 20;  // 320 tokens
  b.join(small, 1);
  auto one = b.submit(std::string(200, 'a'), 1, 8);
  auto large = b.submit(std::string(250, 'b'), 2, 8);
  auto tiny = b.submit("c", 3, 1);
  CHECK(b.count<to_worker::Prepare>(1) == 1);
  b.tokens(1, 0, "x", Finish::kStop);
  CHECK(b.count<to_worker::Prepare>(1) == 3);
  // What no worker could ever hold is refused, naming both numbers.
  auto never = b.submit(std::string(330, 'a'), 4);
  REQUIRE(never->ended);
  CHECK(never->ended->status.message == "prompt needs 21 KV blocks, no worker holds more than 20");
}

TEST_CASE("credit: no more than 64 tokens are under way, all arrive in the end") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("A", 1, 200);
  std::string all;
  for (uint32_t i = 0; i < 200; ++i) {
    const char c = static_cast<char>('a' + i % 26);
    all += c;
    b.tokens(1, i, std::string(1, c), i == 199 ? Finish::kLength : Finish::kNone);
    if (i == 31) b.acknowledge(1, 32);
  }
  CHECK(client->ids.size() == kUnacknowledgedMax + 32);
  CHECK_FALSE(client->ended);
  CHECK(b.status().draining == 1);
  CHECK(b.status().workers.at(0).in_flight == 0);  // the worker is free meanwhile
  b.acknowledge(1, 42);
  CHECK(client->ids.size() == kUnacknowledgedMax + 42);
  b.acknowledge(1, 106);
  b.acknowledge(1, 138);
  CHECK(client->ids.size() == 200);
  REQUIRE(client->ended);
  CHECK(client->text == all + ".");
  CHECK_FALSE(client->broken);
}

TEST_CASE("an acknowledgement of what was never sent ends the stream") {
  for (const uint32_t position : {5u, 0u}) {
    Bench b;
    b.join(Role::kBoth, 1);
    auto client = b.submit("A", 1, 200);
    b.tokens(1, 0, "ab");
    b.acknowledge(1, 2);
    b.acknowledge(1, position);
    REQUIRE(client->ended);
    CHECK(client->ended->status.code == Errc::kInvalid);
    CHECK(b.last<to_worker::Cancel>(1) != nullptr);
  }
}

TEST_CASE("a client that takes nothing is given up at last") {
  Bench b;
  b.join(Role::kBoth, 1);
  auto client = b.submit("A", 1, 100);
  b.tokens(1, 0, std::string(100, 'x'), Finish::kLength);
  b.live(kClientStall + 1s);
  REQUIRE(client->ended);
  CHECK(client->ended->finish == Finish::kCancelled);
  CHECK(client->ended->status.code == Errc::kDeadline);
  CHECK(b.status().draining == 0);
}

TEST_CASE("the deadline of a request ends it, queued or running") {
  for (const bool running : {false, true}) {
    Bench b;
    if (running) b.join(Role::kBoth, 1);
    Submit m;
    m.request = {1, 1};
    m.prompt = "A";
    m.deadline = 2s;
    auto client = b.submit(std::move(m));
    b.live(2500ms);
    REQUIRE(client->ended);
    CHECK(client->ended->status.code == Errc::kDeadline);
    CHECK((b.last<to_worker::Cancel>(1) != nullptr) == running);
  }
}

TEST_CASE("abandoning a request that does not exist, twice, or late does nothing") {
  Bench b;
  b.join(Role::kBoth, 1);
  b.tell(Abandon{{1, 1}});
  auto client = b.submit("A", 1);
  b.tell(Abandon{{1, 1}});
  b.tell(Abandon{{1, 1}});
  REQUIRE(client->ended);
  CHECK(client->ended->finish == Finish::kCancelled);
  CHECK_FALSE(client->broken);
  b.tokens(1, 0, "late");
  CHECK(client->ids.empty());
  CHECK(b.status().totals.stale == 1);
}

TEST_CASE("status and tokenizing say why they cannot") {
  Bench b;
  CHECK(b.status().not_ready == "no worker has joined");
  struct Keep final : ReplyPort<Result<std::vector<Token>>> {
    void on(Result<std::vector<Token>> r) override { kept = std::move(r); }
    std::optional<Result<std::vector<Token>>> kept;
  };
  auto keep = std::make_shared<Keep>();
  const Ref<ReplyPort<Result<std::vector<Token>>>> reply(b.strand, keep);
  b.tell(AskTokenize{"ab", false, reply});
  CHECK(keep->kept->error().code == Errc::kUnavailable);
  b.join(Role::kPrefill, 1);
  CHECK(b.status().not_ready == "no worker that decodes has joined");
  b.tell(AskTokenize{"ab", false, reply});
  CHECK(**keep->kept == std::vector<Token>{'a', 'b'});
  b.join(Role::kDecode, 2);
  CHECK(b.status().ready);
  CHECK(b.status().workers.at(1).name == "decode-2");
}

}  // namespace headrace::coordinator
