#include "protocol/turnstile.h"

#include <doctest/doctest.h>
#include <kj/async-io.h>

#include <memory>
#include <vector>

namespace headrace {
namespace {

struct Gate {
  Gate() : io(kj::setupAsyncIo()), turnstile(new Turnstile(io.provider->getTimer(), 3)) {}
  // Asks for a turn; which one it was is noted when it comes.
  kj::Promise<void> ask(int number) {
    return turnstile->pass()
        .then([this, number]() { passed.push_back(number); })
        .eagerlyEvaluate(nullptr);
  }
  void round() {  // a timer that comes after those of the round
    io.provider->getTimer().afterDelay(0 * kj::NANOSECONDS).wait(io.waitScope);
    kj::evalLast([]() {}).wait(io.waitScope);
  }
  kj::AsyncIoContext io;
  std::unique_ptr<Turnstile> turnstile;
  std::vector<int> passed;
};

}  // namespace

TEST_CASE("three a round, the longest waiting first") {
  Gate gate;
  std::vector<kj::Promise<void>> all;
  for (int i = 0; i < 8; ++i) all.push_back(gate.ask(i));
  kj::evalLast([]() {}).wait(gate.io.waitScope);
  CHECK(gate.passed == std::vector{0, 1, 2});
  CHECK(gate.turnstile->waiting() == 5);
  gate.round();
  CHECK(gate.passed == std::vector{0, 1, 2, 3, 4, 5});
  gate.round();
  CHECK(gate.passed == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  gate.round();
  gate.round();
  all.push_back(gate.ask(8));  // calm again: at once
  kj::evalLast([]() {}).wait(gate.io.waitScope);
  CHECK(gate.passed.back() == 8);
}

TEST_CASE("who has left takes no turn") {
  Gate gate;
  std::vector<kj::Promise<void>> all;
  for (int i = 0; i < 9; ++i) all.push_back(gate.ask(i));
  for (size_t i = 3; i < 8; ++i) all[i] = nullptr;
  gate.round();
  CHECK(gate.passed == std::vector{0, 1, 2, 8});
  CHECK(gate.turnstile->waiting() == 0);
}

TEST_CASE("who waits when it goes fails") {
  Gate gate;
  std::vector<kj::Promise<void>> all;
  for (int i = 0; i < 4; ++i) all.push_back(gate.turnstile->pass());
  gate.turnstile = nullptr;
  all[2].wait(gate.io.waitScope);
  CHECK(kj::runCatchingExceptions([&]() { all[3].wait(gate.io.waitScope); }) != nullptr);
}

}  // namespace headrace
