#include <doctest/doctest.h>

#include "protocol/local_network.h"
#include "tests/worker/conformance.h"

namespace headrace::worker {
namespace {

TEST_CASE("local, blocks in the host's memory") {
  AsioRuntime runtime(2);
  LocalNetwork network;
  run_conformance({network, [&] { return runtime.make_strand(); }, {"local", 0}});
}

TEST_CASE("local, blocks of a device, by way of staging slots") {
  AsioRuntime runtime(2);
  LocalNetwork network;
  run_conformance({network, [&] { return runtime.make_strand(); }, {"local", 0}, true});
}

}  // namespace
}  // namespace headrace::worker
