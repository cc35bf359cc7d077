// Who leaves, and how: coordinator/gateway_stream.cc.
#include "coordinator/gateway_stream.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>

#include "tests/coordinator/edge.h"

namespace headrace::coordinator {
using namespace fakes;
namespace {

constexpr RequestId kId{7, 9};

client::GenerateRequest request(const std::string& prompt, bool resumable) {
  client::GenerateRequest r;
  r.prompt = prompt;
  r.max_tokens = 300;
  r.request_id = kId;
  r.resumable = resumable;
  return r;
}

// Blocks the client's thread at its first chunk until it is let go.
struct Brake {
  void stop(const client::Chunk& chunk) {
    std::unique_lock lock(mutex);
    got += static_cast<uint32_t>(chunk.ids.size());
    turn.wait(lock, [&] { return go; });
  }
  void release() {
    std::lock_guard lock(mutex);
    go = true;
    turn.notify_all();
  }
  std::mutex mutex;
  std::condition_variable turn;
  uint32_t got = 0;
  bool go = false;
};

bool idle(client::Client& c) {
  return Edge::eventually([&] {
    auto s = c.status();
    return s && s->running + s->waiting == 0;
  });
}

}  // namespace

TEST_CASE("a lost client is no cancel for a resumable request: another goes on with it") {
  Edge edge;
  auto other = edge.connect();
  REQUIRE(edge.ready(*other));
  {
    auto first = edge.connect();
    auto g = first->generate(request("~", true), {});
    REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 1; }));
    first = nullptr;  // its end, with the answer under way
    CHECK(g->wait().error().code == Errc::kCancelled);
  }
  std::this_thread::sleep_for(100ms);
  CHECK(edge.worker->cancels == 0);
  auto taken = other->resume(kId, 0, {});
  CHECK(*other->cancel(kId));
  CHECK(taken->wait().error().code == Errc::kCancelled);
  CHECK(Edge::eventually([&] { return edge.worker->cancels == 1; }));
  CHECK(idle(*other));
  CHECK_FALSE(*other->cancel(kId));
}

TEST_CASE("who takes over gets what was missed, the other is told") {
  Edge edge;
  auto a = edge.connect();
  auto b = edge.connect();
  REQUIRE(edge.ready(*a));
  Brake brake;
  auto slow = a->generate(request("*", true), [&](const client::Chunk& c) { brake.stop(c); });
  REQUIRE(Edge::eventually([&] {
    std::lock_guard lock(brake.mutex);
    return brake.got > 0;
  }));
  uint32_t next = 5;
  auto fast = b->resume(kId, next, [&](const client::Chunk& chunk) {
    CHECK(chunk.position == next);
    next += static_cast<uint32_t>(chunk.ids.size());
  });
  const auto end = fast->wait();
  REQUIRE(end);
  CHECK(next == 300);
  CHECK(end->text == std::string(295, 'x') + ".");
  brake.release();
  CHECK(slow->wait().error().code == Errc::kCancelled);
}

TEST_CASE("a resume of what is not known, not that far, or not resumable is not found") {
  Edge edge;
  auto c = edge.connect();
  auto d = edge.connect();
  REQUIRE(edge.ready(*c));
  CHECK(d->resume({1, 2}, 0, {})->wait().error().code == Errc::kNotFound);
  CHECK(d->resume({}, 0, {})->wait().error().code == Errc::kNotFound);
  auto g = c->generate(request("~", false), {});
  REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 1; }));
  CHECK(d->resume(kId, 0, {})->wait().error().code == Errc::kNotFound);
  g->cancel();
  CHECK(idle(*d));
  auto h = c->generate(request("~", true), {});
  REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 2; }));
  CHECK(d->resume(kId, 4'000'000'000, {})->wait().error().code == Errc::kNotFound);
  h->cancel();
  CHECK(idle(*d));
}

TEST_CASE("an id that is in use is refused, and free again at once after its end") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  auto g = c->generate(request("~", false), {});
  REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 1; }));
  const auto twice = c->generate(request("HAL", false), {})->wait();
  REQUIRE_FALSE(twice);
  CHECK(twice.error().code == Errc::kInvalid);
  g->cancel();
  CHECK(g->wait().error().code == Errc::kCancelled);
  CHECK(idle(*c));
  CHECK(c->generate(request("HAL", false), {})->wait()->text == "IBM.");
}

TEST_CASE("a connection is known by what it takes") {
  Edge edge;
  auto a = edge.connect();
  auto b = edge.connect();
  REQUIRE(edge.ready(*a));
  std::vector<std::unique_ptr<client::Generation>> open;
  const auto ask = [&](client::Client& c) { open.push_back(c.generate({.prompt = "~"}, {})); };
  const auto settles = [&](int placed, uint32_t waiting) {
    return Edge::eventually([&] {
      auto s = a->status();
      return s && edge.worker->prepares == placed && s->waiting == waiting;
    });
  };
  for (int i = 0; i < 2; ++i) REQUIRE(a->generate({.prompt = "HAL"}, {})->wait()->text == "IBM.");
  ask(*a);
  REQUIRE(settles(3, 0));
  for (int i = 0; i < 4; ++i) ask(*b);
  REQUIRE(settles(5, 2));  // the share of strangers
  ask(*a);
  REQUIRE(settles(6, 2));
  ask(*a);  // more than it took
  CHECK(settles(6, 3));
}

}  // namespace headrace::coordinator
