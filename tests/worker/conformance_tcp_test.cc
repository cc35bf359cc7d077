#include <doctest/doctest.h>

#include "tests/worker/conformance.h"

namespace headrace::worker {
namespace {

TEST_CASE("tcp, blocks in the host's memory") {
  AsioRuntime runtime(2);
  AsioNetwork network{runtime};
  run_conformance({network, [&] { return runtime.make_strand(); }, {"127.0.0.1", 0}});
}

TEST_CASE("tcp, blocks of a device, by way of staging slots") {
  AsioRuntime runtime(2);
  AsioNetwork network{runtime};
  run_conformance({network, [&] { return runtime.make_strand(); }, {"127.0.0.1", 0}, true});
}

}  // namespace
}  // namespace headrace::worker
