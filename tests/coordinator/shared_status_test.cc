// One question to the Dispatcher for all who ask: coordinator/shared_status.h.
#include "coordinator/shared_status.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "tests/coordinator/edge.h"
#include "tests/coordinator/raw_client.h"

namespace headrace::coordinator {
using namespace fakes;

TEST_CASE("all who ask are answered, also in a crowd") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  RawRpc raw(edge.gateway->endpoint().port);
  REQUIRE(raw.say(RawRpc::bootstrap(0)));
  for (uint32_t i = 1; i <= 200; ++i) REQUIRE(raw.say(RawRpc::status(i)));
  for (uint32_t i = 1; i <= 20; ++i) {
    CHECK(raw.answer(i) == "ok");
    REQUIRE(raw.say(RawRpc::finish(i)));
  }
  CHECK(c->status());
}

TEST_CASE("an answer is not older than its question") {
  Edge edge;
  auto c = edge.connect();
  REQUIRE(edge.ready(*c));
  for (uint64_t i = 1; i <= 30; ++i) {
    REQUIRE(c->generate({.prompt = "HAL"}, {})->wait());
    const auto s = c->status();
    REQUIRE(s);
    for (const auto& [name, count] : s->totals)
      if (name == "submitted") CHECK(count == i);
  }
}

TEST_CASE("without a Dispatcher nobody is answered, and stopping drops who waits") {
  KjThread thread;
  std::unique_ptr<SharedStatus> status;
  bool answered = false;
  kj::Promise<void> waiting = nullptr;
  thread.run([&] {
    status = std::make_unique<SharedStatus>(thread.strand(), thread.io().provider->getTimer(),
                                            Ref<Dispatcher>());
    waiting = status->get()
                  .then([&](SharedStatus::Shared) { answered = true; }, [](kj::Exception&&) {})
                  .eagerlyEvaluate(nullptr);
  });
  thread.stop([&] {
    status->stop();
    waiting = nullptr;
    status = nullptr;
  });
  CHECK_FALSE(answered);
}

TEST_CASE("who asks after the end is told so, and leaves nothing behind") {
  KjThread thread;
  std::unique_ptr<SharedStatus> status;
  std::vector<kj::Promise<void>> asked;
  int told = 0;
  const auto ask = [&] {
    asked.push_back(status->get()
                        .then([](SharedStatus::Shared) {}, [&](kj::Exception&&) { ++told; })
                        .eagerlyEvaluate(nullptr));
  };
  thread.run([&] {
    status = std::make_unique<SharedStatus>(thread.strand(), thread.io().provider->getTimer(),
                                            Ref<Dispatcher>());
    ask();
    status->stop();
    ask();  // too soon after the one before: of its own it would wait
    ask();
  });
  thread.run([] {});
  thread.run([&] { asked.clear(); });
  thread.stop();
  status = nullptr;  // off the loop: a timer left would be freed twice
  CHECK(told == 3);
}

}  // namespace headrace::coordinator
