// What a client's calls become and how they end: coordinator/gateway_session.cc.
#include "tests/coordinator/edge.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace headrace::coordinator {
using namespace fakes;

TEST_CASE("an answer streams and ends") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(c);
  REQUIRE(edge.ready(*c));
  std::string streamed;
  std::vector<Token> ids;
  auto g = c->generate({.prompt = "HAL"}, [&](const client::Chunk& chunk) {
    CHECK(chunk.position == ids.size());
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    streamed += chunk.text;
  });
  auto end = g->wait();
  REQUIRE(end);
  CHECK(streamed == "IBM");
  CHECK(ids == std::vector<Token>{'I', 'B', 'M'});
  CHECK(end->text == "IBM.");
  CHECK(end->tail == ".");
  CHECK(end->ids == ids);
  CHECK(end->finish == Finish::kStop);
  CHECK(end->prompt_tokens == 3);
  CHECK(end->completion_tokens == 3);
  CHECK(end->total > 0);
  // The same by chat and by ids.
  auto chat =
      c->generate({.prompt = std::vector<client::ChatMessage>{{"user", "H"}}, .max_tokens = 2}, {});
  CHECK(chat->wait()->ids == std::vector<Token>{'v', 't'});
  auto by_id = c->generate({.prompt = std::vector<Token>{'H'}}, {});
  CHECK(by_id->wait()->text == "I.");
}

TEST_CASE("refusals come as results, with code and field") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  const auto refused = [&](client::GenerateRequest r) {
    auto end = c->generate(std::move(r), {})->wait();
    REQUIRE_FALSE(end);
    return end.error();
  };
  CHECK(refused({.prompt = ""}).code == Errc::kInvalid);
  CHECK(refused({.prompt = std::string(600, 'a')}).message ==
        "prompt has 600 tokens, the context holds 512");
  CHECK(refused({.prompt = std::string(600, 'a')}).code == Errc::kContextExceeded);
  CHECK(refused({.prompt = "a", .sampling = {.top_p = 7}}).code == Errc::kInvalid);
  CHECK(refused({.prompt = "a", .max_tokens = 0}).message.find("max_tokens") == 0);
  CHECK(refused({.prompt = std::string(2 << 20, 'a')}).message.find("1048576") !=
        std::string::npos);
  CHECK(refused({.prompt = std::vector<Token>{-1}}).message.find("-1") != std::string::npos);
  CHECK(c->generate({.prompt = "HAL"}, {})->wait()->text == "IBM.");
}

TEST_CASE("dropping a call, or the whole client, cancels the request") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  auto g = c->generate({.prompt = "~"}, {});
  REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 1; }));
  g->cancel();
  CHECK(g->wait().error().code == Errc::kCancelled);
  CHECK(Edge::eventually([&] { return edge.worker->cancels == 1; }));
  {
    auto other = edge.connect();
    auto lost = other->generate({.prompt = "~"}, {});
    REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 2; }));
    other = nullptr;
    CHECK_FALSE(lost->wait());
  }
  CHECK(Edge::eventually([&] { return edge.worker->cancels == 2; }));
  CHECK(Edge::eventually([&] {
    auto s = c->status();
    return s && s->running + s->waiting + s->draining == 0;
  }));
}

TEST_CASE("a client that does not take its chunks gets no more than its credit") {
  Edge edge;
  auto slow = edge.connect();
  auto other = edge.connect();
  REQUIRE(edge.ready(*slow));
  std::mutex mutex;
  std::condition_variable turn;
  bool go = false;
  size_t got = 0;
  auto g = slow->generate({.prompt = "*", .max_tokens = 300}, [&](const client::Chunk& chunk) {
    std::unique_lock lock(mutex);
    got += chunk.ids.size();
    turn.wait(lock, [&] { return go; });
  });
  REQUIRE(Edge::eventually([&] {
    auto s = other->status();
    return s && s->waiting == 1;  // parked: no worker holds it
  }));
  CHECK(other->generate({.prompt = "HAL"}, {})->wait()->text == "IBM.");
  {
    std::lock_guard lock(mutex);
    CHECK(got <= kUnacknowledgedMax);
    go = true;
  }
  turn.notify_all();
  auto end = g->wait();
  REQUIRE(end);
  CHECK(end->text == std::string(300, 'x') + ".");
  CHECK(end->finish == Finish::kLength);
}

TEST_CASE("open calls of a connection are limited") {
  Edge edge;
  auto c = edge.connect();
  auto other = edge.connect();
  REQUIRE(edge.ready(*c));
  std::vector<std::unique_ptr<client::Generation>> many;
  for (uint32_t i = 0; i < Gateway::kOpenCallsMax; ++i)
    many.push_back(c->generate({.prompt = "~"}, {}));
  auto over = c->generate({.prompt = "HAL"}, {})->wait();
  REQUIRE_FALSE(over);
  CHECK(over.error().code == Errc::kOverloaded);
  CHECK(over.error().message.find("256") != std::string::npos);
  many.clear();
  CHECK(Edge::eventually([&] {
    auto s = other->status();
    return s && s->running + s->waiting == 0;
  }));
  const auto after = c->generate({.prompt = "HAL"}, {})->wait();
  REQUIRE_MESSAGE(after, after.error().message);
  CHECK(after->text == "IBM.");
}

TEST_CASE("many answers on one connection owe it no more questions than one") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  std::vector<std::unique_ptr<client::Generation>> many;
  for (uint32_t i = 0; i < Gateway::kOpenCallsMax; ++i)
    many.push_back(c->generate({.prompt = "~"}, {}));
  std::this_thread::sleep_for(1500ms);  // a client asks for a sign of life twice a second
  CHECK(c->status());
  CHECK(edge.gateway->offenders() == 0);
}

TEST_CASE("questions: hello, models, status, tokenize, detokenize") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  CHECK(c->hello("test")->version == HEADRACE_VERSION);
  auto models = c->models();
  REQUIRE(models);
  REQUIRE(models->size() == 1);
  CHECK(models->at(0).name == "Fake 1M");
  CHECK(models->at(0).context == 512);
  CHECK(models->at(0).chat);
  auto status = c->status();
  REQUIRE(status);
  REQUIRE(status->workers.size() == 1);
  CHECK(status->workers[0].name == "both-1");
  CHECK(status->workers[0].role == "both");
  CHECK(status->workers[0].pid == 1001);
  CHECK(*c->tokenize("ab", false) == std::vector<Token>{'a', 'b'});
  CHECK(*c->tokenize("ab", true) == std::vector<Token>{256, 'a', 'b'});
  CHECK(*c->detokenize({'a', 'b'}) == "ab");
  CHECK(c->detokenize({9999}).error().code == Errc::kInvalid);
  Edge empty(false);
  auto e = empty.connect();
  CHECK_FALSE(e->status()->ready);
  CHECK(e->status()->not_ready == "no worker has joined");
  CHECK(e->models()->empty());
  CHECK(e->tokenize("a", false).error().code == Errc::kUnavailable);
}

}  // namespace headrace::coordinator
