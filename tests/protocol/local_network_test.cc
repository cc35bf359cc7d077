#include "protocol/local_network.h"

#include <doctest/doctest.h>

#include "protocol/asio_runtime.h"
#include "tests/protocol/link_rules.h"

namespace headrace {
namespace {

TEST_CASE("links in memory keep the rules of links") {
  AsioRuntime runtime(2);
  LocalNetwork network;
  LinkRules{network, [&] { return runtime.make_strand(); }, {"local", 0}}.run_all();
}

TEST_CASE("two networks do not meet") {
  AsioRuntime runtime(1);
  LocalNetwork one;
  LocalNetwork other;
  auto strand = runtime.make_strand();
  auto listener = one.listen({"local", 5}, {}, strand, [](auto) {});
  REQUIRE(listener);
  LinkRules rules{other, {}, {}};
  CHECK_FALSE(rules.dial({"local", 5}, strand));
}

TEST_CASE("links outlive their network") {
  AsioRuntime runtime(2);
  auto network = std::make_unique<LocalNetwork>();
  LinkRules rules{*network, [&] { return runtime.make_strand(); }, {"local", 0}};
  auto pair = rules.connect();
  network = nullptr;
  pair.a->start();
  pair.b->start();
  on(pair.a->strand, [&] { pair.a->link->send(pattern(10, 1)); });
  CHECK(eventually(pair.b->strand, [&] { return pair.b->frames.size() == 1; }));
}

}  // namespace
}  // namespace headrace
