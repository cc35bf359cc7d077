#include "deploy/cli/advertise.h"

#include <doctest/doctest.h>

#include <string>

namespace headrace::cli {
namespace {

TEST_CASE("wildcards in all spellings") {
  for (const std::string all : {"0.0.0.0", "::", "0:0:0:0:0:0:0:0", "0"}) {
    CAPTURE(all);
    CHECK(wildcard(all));
  }
  for (const std::string one : {"127.0.0.1", "::1", "10.0.0.0", "localhost"}) {
    CAPTURE(one);
    CHECK_FALSE(wildcard(one));
  }
}

TEST_CASE("packets to this machine leave from it, and those to nobody from nowhere") {
  CHECK(leaves_from("127.0.0.1") == "127.0.0.1");
  CHECK(leaves_from("127.0.0.7").rfind("127.", 0) == 0);
  CHECK(leaves_from("no.such.host.invalid").empty());
}

TEST_CASE("what listens at an address is advertised there, unless another one was told") {
  const Endpoint at{"127.0.0.1", 8081};
  CHECK(advertised(at, "", {"10.1.2.3"}) == at);
  CHECK(advertised(at, "node7", {}) == Endpoint{"node7", 8081});
  CHECK(advertised(at, "node7:99", {}) == Endpoint{"node7", 99});
  CHECK(advertised({"0.0.0.0", 8081}, "[fd00::7]", {}) == Endpoint{"fd00::7", 8081});
  CHECK(advertised({"", 0}, "node7", {}).port == 0);  // nobody listens
}

TEST_CASE("the host alone, as it is told to workers at other ports") {
  CHECK(advertised_host("node7:99") == "node7");
  CHECK(advertised_host("node7") == "node7");
  CHECK(advertised_host("[fd00::7]:99") == "[fd00::7]");
}

TEST_CASE("a wildcard is never advertised: what packets to the peers leave from is") {
  for (const std::string all : {"0.0.0.0", "::"}) {
    const Endpoint local = advertised({all, 8081}, "", {"127.0.0.1", "no.such.host.invalid"});
    CHECK_FALSE(wildcard(local.host));
    CHECK(local.port == 8081);
    // The machine's own address, as its route to anyone else has it; loopback where it has none.
    const std::string own = leaves_from("192.0.2.1");
    CHECK(local.host == (own.empty() ? "127.0.0.1" : own));
    if (own.empty()) continue;
    CHECK(advertised({all, 8081}, "", {"127.0.0.1", own}) == Endpoint{own, 8081});
  }
}

TEST_CASE("--metrics-advertise takes HOST or HOST:PORT that others can reach") {
  CLI::App app;
  std::string at;
  app.add_option("--metrics-advertise", at)->check(advertised_address());
  for (const std::string good :
       {"10.0.0.7", "node7", "node7:9000", "[fd00::7]", "[fd00::7]:9000"}) {
    CAPTURE(good);
    CHECK_NOTHROW(app.parse("--metrics-advertise " + good));
  }
  for (const std::string bad : {"0.0.0.0", "0.0.0.0:8081", "[::]", "node7:x", "fd00::7", ":1"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(app.parse("--metrics-advertise " + bad), CLI::ValidationError);
  }
}

}  // namespace
}  // namespace headrace::cli
