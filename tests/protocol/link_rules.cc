#include "tests/protocol/link_rules.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

namespace headrace {

Bytes pattern(size_t size, int fill) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(static_cast<size_t>(fill) + i * 7);
  return bytes;
}

bool eventually(const std::shared_ptr<Strand>& strand, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kHang;
  while (std::chrono::steady_clock::now() < end) {
    if (on(strand, condition)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

void Side::start() {
  on(strand, [this] {
    link->start(
        [this](Bytes frame) {
          frames.push_back(std::move(frame));
          if (then) then(frames.back());
        },
        [this](Status why) { closed.push_back(std::move(why)); });
  });
}

LinkRules::Pair::~Pair() {
  if (listener) on(door, [this] { listener = nullptr; });
}

Result<std::unique_ptr<Link>> LinkRules::dial(const Endpoint& to, std::shared_ptr<Strand> at,
                                              Duration deadline, LinkLimits limits) {
  auto promise = std::make_shared<std::promise<Result<std::unique_ptr<Link>>>>();
  auto result = promise->get_future();
  network.dial(to, deadline, limits, at, [promise](auto r) { promise->set_value(std::move(r)); });
  if (result.wait_for(kHang) != std::future_status::ready) std::abort();
  return result.get();
}

LinkRules::Pair LinkRules::connect(LinkLimits a, LinkLimits b) {
  Pair pair;
  pair.door = strand();
  pair.a = std::make_unique<Side>(strand());
  pair.b = std::make_unique<Side>(pair.door);  // accepted links live on the listener's strand
  auto accepted = std::make_shared<std::promise<void>>();
  auto done = accepted->get_future();
  auto opened = network.listen(home, b, pair.door, [side = pair.b.get(), accepted](auto link) {
    side->adopt(std::move(link));
    accepted->set_value();
  });
  REQUIRE(opened);
  pair.listener = std::move(*opened);
  auto dialled = dial(pair.listener->endpoint(), pair.a->strand, kHang, a);
  REQUIRE(dialled);
  on(pair.a->strand, [&] { pair.a->adopt(std::move(*dialled)); });
  REQUIRE(done.wait_for(kHang) == std::future_status::ready);
  return pair;
}

void LinkRules::frames_arrive_in_order() {
  Pair pair = connect();
  pair.a->start();
  pair.b->start();
  const std::vector<size_t> sizes = {0, 1, 3, 65'535, 65'536, 65'537, 0, 1'000'000, 5, 8u << 20};
  for (Side* side : {pair.a.get(), pair.b.get()})
    on(side->strand, [&] {
      for (size_t i = 0; i < sizes.size(); ++i)
        side->link->send(pattern(sizes[i], static_cast<int>(i)));
    });
  for (Side* side : {pair.a.get(), pair.b.get()}) {
    REQUIRE(eventually(side->strand, [&] { return side->frames.size() == sizes.size(); }));
    for (size_t i = 0; i < sizes.size(); ++i)
      CHECK(side->frames[i] == pattern(sizes[i], static_cast<int>(i)));
    CHECK(eventually(side->strand, [&] { return side->link->unsent() == 0; }));
  }
  CHECK(pair.a->open());
  CHECK(on(pair.a->strand, [&] { return pair.a->link->peer(); }) ==
        to_string(pair.listener->endpoint()));
}

void LinkRules::close_sends_what_is_left() {
  Pair pair = connect();
  pair.a->start();
  pair.b->start();
  on(pair.a->strand, [&] {
    for (int i = 0; i < 100; ++i) pair.a->link->send(pattern(60'000, i));
    pair.a->link->close();
    pair.a->link->close();
    pair.a->link->send(pattern(1, 1));  // dropped
  });
  // Words the other way meet a closed end and hurt nobody.
  on(pair.b->strand, [&] { pair.b->link->send(pattern(100'000, 1)); });
  REQUIRE(eventually(pair.b->strand, [&] { return !pair.b->closed.empty(); }));
  REQUIRE(pair.b->frames.size() == 100);
  CHECK(pair.b->frames[99] == pattern(60'000, 99));
  CHECK(pair.b->closed[0].code == Errc::kDisconnected);
  CHECK(pair.a->open());
  CHECK(pair.a->frames.empty());
  on(pair.b->strand, [&] { pair.b->link->send(pattern(1, 1)); });
  CHECK(pair.b->closed.size() == 1);
}

void LinkRules::destroying_tells_the_peer() {
  Pair pair = connect();
  pair.a->start();
  pair.b->start();
  on(pair.a->strand, [&] { pair.a->link = nullptr; });
  REQUIRE(eventually(pair.b->strand, [&] { return !pair.b->closed.empty(); }));
  CHECK(pair.b->closed[0].code == Errc::kDisconnected);
  CHECK(pair.b->closed[0].message.find("closed the link") != std::string::npos);
  CHECK(pair.a->open());
}

void LinkRules::nothing_is_lost_before_start() {
  Pair pair = connect();
  pair.a->start();
  on(pair.a->strand, [&] {
    pair.a->link->send(pattern(10, 1));
    pair.a->link->send(pattern(20, 2));
    pair.a->link->close();
  });
  std::this_thread::sleep_for(20ms);
  CHECK(pair.b->open());
  pair.b->start();
  REQUIRE(eventually(pair.b->strand, [&] { return !pair.b->closed.empty(); }));
  CHECK(pair.b->frames == std::vector<Bytes>{pattern(10, 1), pattern(20, 2)});
}

void LinkRules::a_long_frame_ends_the_link() {
  Pair pair = connect({.frame_bytes_max = 1000}, {.frame_bytes_max = 1000});
  pair.a->start();
  pair.b->start();
  on(pair.a->strand, [&] {
    pair.a->link->send(pattern(1000, 1));
    pair.a->link->send(pattern(1001, 2));
    CHECK(pair.a->closed.empty());  // never from inside a call
    pair.a->link->send(pattern(1, 3));
  });
  REQUIRE(eventually(pair.a->strand, [&] { return !pair.a->closed.empty(); }));
  REQUIRE(eventually(pair.b->strand, [&] { return !pair.b->closed.empty(); }));
  CHECK(pair.a->closed[0].code == Errc::kInvalid);
  CHECK(pair.a->closed[0].message.find("frame of 1001 bytes") == 0);
  CHECK(pair.a->closed[0].message.find("the limit is 1000") != std::string::npos);
  CHECK(pair.b->frames.size() <= 1);
}

void LinkRules::a_full_queue_ends_the_link() {
  Pair pair = connect({.unsent_bytes_max = 32u << 20});
  pair.a->start();  // b does not read
  on(pair.a->strand, [&] {
    for (int i = 0; i < 64; ++i) {
      pair.a->link->send(pattern(1u << 20, i));
      CHECK(pair.a->closed.empty());
      CHECK(pair.a->link->unsent() <= (32u << 20));
    }
  });
  REQUIRE(eventually(pair.a->strand, [&] { return !pair.a->closed.empty(); }));
  CHECK(pair.a->closed.size() == 1);
  CHECK(pair.a->closed[0].code == Errc::kOverloaded);
  CHECK(pair.a->closed[0].message.find("more than 33554432 bytes") != std::string::npos);
  CHECK(on(pair.a->strand, [&] { return pair.a->link->unsent(); }) == 0);
}

void LinkRules::drained_is_told() {
  Pair pair = connect({.frame_deadline = kHang});
  pair.a->start();
  int drained = 0;
  bool low = true;
  on(pair.a->strand, [&] {
    pair.a->link->on_drained(1000, [&] {
      ++drained;
      low = low && pair.a->link->unsent() <= 1000;
    });
    for (int i = 0; i < 24; ++i) pair.a->link->send(pattern(1u << 20, i));
    CHECK(pair.a->link->unsent() > 1000);
    CHECK(drained == 0);
  });
  pair.b->start();
  REQUIRE(eventually(pair.a->strand, [&] { return drained == 1; }));
  CHECK(low);
  on(pair.a->strand, [&] { pair.a->link->send(pattern(2000, 1)); });
  REQUIRE(eventually(pair.a->strand, [&] { return drained == 2; }));
  CHECK(eventually(pair.b->strand, [&] { return pair.b->frames.size() == 25; }));
}

void LinkRules::payloads_arrive_in_their_frames() {
  Pair pair = connect();
  pair.a->start();
  pair.b->start();
  const auto big = std::make_shared<Bytes>(pattern(3u << 20, 5));
  std::vector<Bytes> sent;
  on(pair.a->strand, [&] {
    for (size_t i = 0; i < 30; ++i) {
      const Bytes head = pattern(i % 7, static_cast<int>(i));
      const auto body = std::span(*big).subspan(i * 1000, i % 3 == 0 ? 0 : i * 50000);
      Bytes whole = head;
      whole.insert(whole.end(), body.begin(), body.end());
      sent.push_back(std::move(whole));
      pair.a->link->send(head, Payload{body, big});
    }
  });
  REQUIRE(eventually(pair.b->strand, [&] { return pair.b->frames.size() == 30; }));
  CHECK(on(pair.b->strand, [&] { return pair.b->frames == sent; }));
  CHECK(eventually(pair.a->strand, [&] { return pair.a->link->unsent() == 0; }));
  on(pair.a->strand, [] {});
  CHECK(big.use_count() == 1);
}

void LinkRules::frames_land() {
  constexpr size_t kHead = 9;
  Pair pair = connect();
  pair.a->start();
  Bytes memory(10u << 20);
  size_t next = 0;
  on(pair.b->strand, [&] {
    pair.b->link->land(kHead, [&](std::span<const std::byte> head, size_t rest) {
      if (head[0] == std::byte{1}) return Landing{};
      return Landing{Landing::Way::kAt, memory.data() + std::exchange(next, next + rest)};
    });
  });
  pair.b->start();
  Bytes all;
  std::deque<Bytes> bodies;
  on(pair.a->strand, [&] {
    for (const size_t n : {1u, 3000u, 1u << 20, 9u, 70000u, 1u << 20, 2u << 20, 5u}) {
      Bytes head = pattern(kHead, 2);
      head[0] = std::byte{n == 70000 ? uint8_t{1} : uint8_t{0}};
      const Bytes& body = bodies.emplace_back(pattern(n, static_cast<int>(n)));
      if (n != 70000) all.insert(all.end(), body.begin(), body.end());
      pair.a->link->send(head, Payload{body, nullptr});
      if (n == 5) break;
      pair.a->link->send(pattern(kHead, 3));  // nothing but a head
    }
  });
  REQUIRE(eventually(pair.b->strand, [&] { return pair.b->frames.size() == 15; }));
  on(pair.b->strand, [&] {
    for (size_t i = 0; i < 15; ++i)
      CHECK(pair.b->frames[i].size() == (i == 8 ? kHead + 70000 : kHead));
    CHECK(next == all.size());
    CHECK(std::equal(all.begin(), all.end(), memory.begin()));
  });
  // The bodies are ours: nothing of the link reads them any more.
  CHECK(eventually(pair.a->strand, [&] { return pair.a->link->unsent() == 0; }));
}

void LinkRules::a_frame_without_a_place_waits() {
  Pair pair = connect({}, {.frame_deadline = 50ms});
  pair.a->start();
  Bytes memory(3u << 20);
  bool room = false;
  int asked = 0;
  on(pair.b->strand, [&] {
    pair.b->link->land(4, [&](std::span<const std::byte>, size_t) {
      ++asked;
      return room ? Landing{Landing::Way::kAt, memory.data()} : Landing{Landing::Way::kWait};
    });
  });
  pair.b->start();
  const Bytes sent = pattern(3u << 20, 1);
  on(pair.a->strand, [&] {
    pair.a->link->send(pattern(4, 1));
    pair.a->link->send(pattern(4, 2), Payload{sent, nullptr});
    pair.a->link->send(pattern(3, 3));
  });
  REQUIRE(eventually(pair.b->strand, [&] { return asked == 1; }));
  std::this_thread::sleep_for(200ms);  // longer than a begun frame may take
  on(pair.b->strand, [&] {
    CHECK(pair.b->frames.size() == 1);
    CHECK(pair.b->closed.empty());
    pair.b->link->resume();
  });
  REQUIRE(eventually(pair.b->strand, [&] { return asked == 2; }));
  on(pair.b->strand, [&] {
    CHECK(pair.b->frames.size() == 1);
    room = true;
    pair.b->link->resume();
  });
  REQUIRE(eventually(pair.b->strand, [&] { return pair.b->frames.size() == 3; }));
  CHECK(memory == sent);
}

// What was lent is no longer read, and the link is over for both.
void LinkRules::close_lets_payloads_go() {
  Pair pair = connect();
  pair.a->start();  // b reads nothing
  auto lent = std::make_shared<Bytes>(pattern(8u << 20, 1));
  on(pair.a->strand, [&] {
    for (int i = 0; i < 7; ++i) pair.a->link->send(pattern(4, 2), Payload{*lent, lent});
    pair.a->link->close();
    CHECK(lent.use_count() == 1);
    lent = nullptr;
  });
  pair.b->start();
  CHECK(eventually(pair.b->strand, [&] { return !pair.b->closed.empty(); }));
}

void LinkRules::a_callback_may_destroy_its_link() {
  Pair pair = connect();
  pair.a->start();
  pair.b->then = [&](const Bytes&) { pair.b->link = nullptr; };
  pair.b->start();
  on(pair.a->strand, [&] {
    for (int i = 0; i < 10; ++i) pair.a->link->send(pattern(100, i));
  });
  REQUIRE(eventually(pair.a->strand, [&] { return !pair.a->closed.empty(); }));
  CHECK(on(pair.b->strand, [&] { return pair.b->frames.size(); }) == 1);
  CHECK(pair.b->open());
}

void LinkRules::listening() {
  auto at = strand();
  auto opened = network.listen(home, {}, at, [](auto) {});
  REQUIRE(opened);
  auto listener = std::move(*opened);
  const Endpoint real = listener->endpoint();
  CHECK(real.port != 0);
  const auto second = network.listen(real, {}, at, [](auto) {});
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Errc::kUnavailable);
  CHECK(second.error().message ==
        "cannot listen on " + to_string(real) + ": address already in use");
  on(at, [&] { listener = nullptr; });
  const auto refused = dial(real, at);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::kUnavailable);
  CHECK(refused.error().message == "cannot connect to " + to_string(real) + ": connection refused");
  auto again = network.listen(real, {}, at, [](auto) {});
  REQUIRE(again);
  on(at, [&] { *again = nullptr; });
}

void LinkRules::many_links_at_once() {
  constexpr int kLinks = 8;
  constexpr int kFrames = 50;
  std::vector<Pair> pairs;
  for (int i = 0; i < kLinks; ++i) pairs.push_back(connect());
  for (Pair& pair : pairs) {
    pair.b->then = [side = pair.b.get()](const Bytes& f) { side->link->send(f); };
    pair.a->start();
    pair.b->start();
  }
  for (Pair& pair : pairs)
    pair.a->strand->post([side = pair.a.get()] {
      for (int i = 0; i < kFrames; ++i) side->link->send(pattern(3000, i));
    });
  for (Pair& pair : pairs)
    CHECK(eventually(pair.a->strand, [&] { return pair.a->frames.size() == kFrames; }));
}

void LinkRules::run_all() {
  SUBCASE("frames arrive whole and in order, both ways") { frames_arrive_in_order(); }
  SUBCASE("close sends what is left") { close_sends_what_is_left(); }
  SUBCASE("destroying tells the peer") { destroying_tells_the_peer(); }
  SUBCASE("nothing is lost before start") { nothing_is_lost_before_start(); }
  SUBCASE("a long frame ends the link") { a_long_frame_ends_the_link(); }
  SUBCASE("a full queue ends the link") { a_full_queue_ends_the_link(); }
  SUBCASE("drained is told") { drained_is_told(); }
  SUBCASE("a callback may destroy its link") { a_callback_may_destroy_its_link(); }
  SUBCASE("payloads arrive in their frames") { payloads_arrive_in_their_frames(); }
  SUBCASE("frames land") { frames_land(); }
  SUBCASE("a frame without a place waits") { a_frame_without_a_place_waits(); }
  SUBCASE("close lets payloads go") { close_lets_payloads_go(); }
  SUBCASE("listening") { listening(); }
  SUBCASE("many links at once") { many_links_at_once(); }
}

}  // namespace headrace
