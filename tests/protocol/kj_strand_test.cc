#include "protocol/kj_strand.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>

namespace headrace {

TEST_CASE("tasks of one thread run in their order, all on the loop's thread") {
  KjThread loop;
  constexpr int kEach = 2000;
  std::vector<int> seen[3];  // touched on the loop's thread only
  std::atomic<bool> elsewhere = false;
  std::thread::id home;
  loop.run([&] { home = std::this_thread::get_id(); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        loop.strand()->post([&, t, i] {
          if (std::this_thread::get_id() != home) elsewhere = true;
          seen[t].push_back(i);
        });
    });
  for (auto& thread : threads) thread.join();
  loop.run([&] {
    for (const auto& one : seen) {
      CHECK(one.size() == kEach);
      CHECK(std::is_sorted(one.begin(), one.end()));
    }
  });
  CHECK_FALSE(elsewhere);
}

TEST_CASE("a task posted by a task runs; a task that throws harms no other") {
  KjThread loop;
  std::promise<int> done;
  loop.strand()->post([] { throw std::runtime_error("ours"); });
  loop.strand()->post([&] { loop.strand()->post([&] { done.set_value(7); }); });
  CHECK(done.get_future().get() == 7);
}

TEST_CASE("timers fire once, in order; a destroyed one never does") {
  KjThread loop;
  std::promise<void> done;
  std::vector<int> order;
  Timer a, b, c, again;
  loop.run([&] {
    b = loop.strand()->after(30ms, [&] { order.push_back(2); });
    a = loop.strand()->after(10ms, [&] {
      order.push_back(1);
      a = {};  // from inside of its own call
      c = {};
      again = loop.strand()->after(40ms, [&] { done.set_value(); });
    });
    c = loop.strand()->after(20ms, [&] { order.push_back(3); });
  });
  done.get_future().wait();
  loop.run([&] { CHECK(order == std::vector<int>{1, 2}); });
  loop.stop([&] {
    b = {};
    again = {};
  });
}

TEST_CASE("what comes after the end is dropped, what waits is destroyed") {
  auto loop = std::make_unique<KjThread>();
  const auto strand = loop->strand();
  bool last = false;
  loop->stop([&] { last = true; });
  loop->stop([&] { last = false; });
  loop = nullptr;
  CHECK(last);
  const auto token = std::make_shared<int>(1);
  strand->post([token] { FAIL("ran after the end"); });
  CHECK(token.use_count() == 1);
}

}  // namespace headrace
