#include "protocol/asio_runtime.h"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>

#include "protocol/actor.h"
#include "tests/protocol/link_rules.h"

namespace headrace {
namespace {

TEST_CASE("tasks of one thread run in order, one at a time, whatever the number of threads") {
  AsioRuntime runtime(4);
  auto strand = runtime.make_strand();
  constexpr int kThreads = 4;
  constexpr int kTasks = 2000;
  std::atomic<int> inside = 0;
  std::atomic<int> overlaps = 0;
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t)
    posters.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i)
        strand->post([&, t, i] {
          overlaps += inside.fetch_add(1) != 0;
          seen[static_cast<size_t>(t)].push_back(i);
          inside.fetch_sub(1);
        });
    });
  for (auto& poster : posters) poster.join();
  on(strand, [] {});
  CHECK(overlaps == 0);
  for (const auto& order : seen) {
    REQUIRE(order.size() == kTasks);
    for (int i = 0; i < kTasks; ++i) REQUIRE(order[static_cast<size_t>(i)] == i);
  }
}

TEST_CASE("a timer fires once and not early; what is destroyed never fires") {
  AsioRuntime runtime(2);
  auto strand = runtime.make_strand();
  std::promise<Instant> fired;
  std::atomic<int> never = 0;
  const Instant start = strand->now();
  std::vector<Timer> timers;
  on(strand, [&] {
    timers.push_back(strand->after(20ms, [&] { fired.set_value(strand->now()); }));
    Timer dropped = strand->after(0ms, [&] { ++never; });
    Timer cancelled = strand->after(5ms, [&] { ++never; });
    cancelled.cancel();
    timers.push_back(std::move(cancelled));
  });
  auto result = fired.get_future();
  REQUIRE(result.wait_for(kHang) == std::future_status::ready);
  CHECK(result.get() >= start + 20ms);
  CHECK(never == 0);
  on(strand, [&] { timers.clear(); });
}

TEST_CASE("a timer that is due but destroyed first does not fire") {
  AsioRuntime runtime(2);
  auto strand = runtime.make_strand();
  std::atomic<int> never = 0;
  on(strand, [&] {
    Timer due = strand->after(1ms, [&] { ++never; });
    std::this_thread::sleep_for(20ms);  // it expires while its strand is busy
    due.cancel();
  });
  on(strand, [] {});
  std::this_thread::sleep_for(5ms);
  on(strand, [] {});
  CHECK(never == 0);
}

TEST_CASE("a timer may be replaced by its own task") {
  AsioRuntime runtime(1);
  auto strand = runtime.make_strand();
  struct Ticker {
    std::shared_ptr<Strand> strand;
    Timer timer;
    int rounds = 0;
    std::promise<void> done;
    void tick() {
      if (++rounds == 5) return done.set_value();
      timer = strand->after(1ms, [this] { tick(); });
    }
  } ticker{strand, {}, 0, {}};
  strand->post([&] { ticker.tick(); });
  CHECK(ticker.done.get_future().wait_for(kHang) == std::future_status::ready);
  on(strand, [&] { ticker.timer.cancel(); });
}

TEST_CASE("stop frees what waits, also what owns itself; later posts are dropped") {
  auto strand = std::shared_ptr<Strand>();
  std::weak_ptr<int> waiting;
  std::weak_ptr<int> posted;
  struct SelfOwner {
    Timer timer;
    std::shared_ptr<int> held = std::make_shared<int>(1);
  };
  {
    AsioRuntime runtime(2);
    strand = runtime.make_strand();
    on(strand, [&] {
      auto owner = std::make_shared<SelfOwner>();
      waiting = owner->held;
      owner->timer = strand->after(1h, [owner] {});
    });
    runtime.stop();
    runtime.stop();
    CHECK(waiting.expired());
  }
  auto held = std::make_shared<int>(2);
  posted = held;
  strand->post([h = std::move(held), strand] {});
  CHECK(posted.expired());
  Timer timer = strand->after(1ms, [] {});
}

TEST_CASE("stop while others post") {
  for (int round = 0; round < 20; ++round) {
    auto runtime = std::make_unique<AsioRuntime>(2);
    auto strand = runtime->make_strand();
    std::atomic<bool> end = false;
    std::thread poster([&] {
      while (!end) strand->post([strand] {});
    });
    std::this_thread::sleep_for(1ms);
    runtime = nullptr;
    end = true;
    poster.join();
  }
}

struct Sum {
  void on(int n) {
    total += n;
    if (total == 100) done.set_value();
  }
  int total = 0;
  std::promise<void> done;
};

TEST_CASE("an actor is told through its Ref until it is gone") {
  AsioRuntime runtime(2);
  auto strand = runtime.make_strand();
  auto sum = std::make_shared<Sum>();
  auto done = sum->done.get_future();
  const Ref<Sum> ref(strand, sum);
  std::vector<std::thread> tellers;
  for (int t = 0; t < 4; ++t)
    tellers.emplace_back([ref] {
      for (int i = 0; i < 25; ++i) ref.tell(1);
    });
  for (auto& teller : tellers) teller.join();
  REQUIRE(done.wait_for(kHang) == std::future_status::ready);
  on(strand, [&] { sum = nullptr; });
  ref.tell(1);
  on(strand, [] {});
}

TEST_CASE("signals arrive on the strand, each time") {
  AsioRuntime runtime(1);
  auto strand = runtime.make_strand();
  std::vector<int> seen;
  runtime.on_signals(strand, {SIGUSR1, SIGUSR2}, [&](int signal) { seen.push_back(signal); });
  std::raise(SIGUSR1);
  REQUIRE(eventually(strand, [&] { return seen.size() == 1; }));
  std::raise(SIGUSR2);
  REQUIRE(eventually(strand, [&] { return seen.size() == 2; }));
  CHECK(seen == std::vector{SIGUSR1, SIGUSR2});
}

TEST_CASE("stop lets closed links send what they hold") {
  AsioRuntime receiver(1);
  AsioNetwork receiving(receiver);
  auto door = receiver.make_strand();
  auto side = std::make_unique<Side>(door);
  auto opened = receiving.listen({"127.0.0.1", 0}, {}, door, [&](auto link) {
    side->adopt(std::move(link));
    side->link->start([&](Bytes f) { side->frames.push_back(std::move(f)); },
                      [&](Status why) { side->closed.push_back(std::move(why)); });
  });
  REQUIRE(opened);
  {
    AsioRuntime sender(1);
    AsioNetwork sending(sender);
    LinkRules rules{sending, {}, {}};
    auto strand = sender.make_strand();
    auto link = rules.dial((*opened)->endpoint(), strand);
    REQUIRE(link);
    on(strand, [&] {
      (*link)->start([](Bytes) {}, [](Status) {});
      for (int i = 0; i < 20; ++i) (*link)->send(pattern(1u << 20, i));
      (*link)->close();
    });
  }
  CHECK(eventually(door, [&] { return side->frames.size() == 20 && !side->closed.empty(); }));
  on(door, [&] { *opened = nullptr; });
}

}  // namespace
}  // namespace headrace
