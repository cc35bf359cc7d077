// The connection of the client library: protocol/client_loop.cc.
#include "protocol/client_loop.h"

#include <doctest/doctest.h>

#include <thread>

#include "tests/coordinator/cut_proxy.h"
#include "tests/coordinator/edge.h"

namespace headrace::client {
using coordinator::fakes::CutProxy;
using coordinator::fakes::Edge;

TEST_CASE("a connection that is refused says why") {
  Endpoint nobody;
  {
    Edge edge(false);
    nobody = edge.gateway->endpoint();
  }
  const auto c = Client::connect(nobody);
  REQUIRE_FALSE(c);
  CHECK(c.error().code == Errc::kUnavailable);
  CHECK(c.error().message == "cannot connect to " + to_string(nobody) +
                                 ": Connection refused; is a coordinator running there?");
}

TEST_CASE("of many who lost one connection the first makes the next") {
  Edge edge(false);
  CutProxy proxy(edge.gateway->endpoint());
  Loop loop(proxy.endpoint());
  REQUIRE(loop.connect(5s).ok());
  for (int round = 1; round <= 2; ++round) {
    const auto renewed = loop.call<bool>(5s, [&loop] {
      const uint64_t lost = loop.epoch();
      auto both = loop.renew(lost).then([&loop, lost] { return loop.renew(lost); });
      return loop.renew(lost).then([b = kj::mv(both)]() mutable { return kj::mv(b); }).then([]() {
        return Result<bool>(true);
      });
    });
    REQUIRE(renewed);
    // The proxy counts on a thread of its own: what is answered through it has been counted.
    REQUIRE(loop.call<bool>(5s, [&loop] {
      return loop.main().helloRequest().send().then([](auto&&) { return Result<bool>(true); });
    }));
    CHECK(proxy.accepted() == 1 + round);
  }
  const auto info = loop.call<bool>(5s, [&loop] {
    return loop.main().helloRequest().send().then([](auto&&) { return Result<bool>(true); });
  });
  CHECK(info);
}

TEST_CASE("a slot keeps the first value") {
  Slot<int> slot;
  std::thread other([&] {
    slot.set(1);
    slot.set(2);
  });
  CHECK(*slot.take() == 1);
  other.join();
}

}  // namespace headrace::client
