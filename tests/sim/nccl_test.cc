#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "protocol/slowdown.h"
#include "tests/sim/nccl_run.h"

namespace headrace::sim {
namespace {

// HEADRACE_NCCL_SEEDS="first count" runs others than the usual ones.
TEST_CASE("hand-offs over a fake NCCL: whatever seed, nothing is wrong") {
  unsigned long long first = 1, count = kSlowdown > 1 ? 200 : 2000;
  if (const char* text = std::getenv("HEADRACE_NCCL_SEEDS")) {
    REQUIRE(std::sscanf(text, "%llu %llu", &first, &count) == 2);
  }
  NcclRun all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const NcclRun run = run_nccl(seed);
    REQUIRE_MESSAGE(run.wrong.empty(), "seed " << seed << ": " << run.wrong << "\n" << run.trace);
    all.hand_offs += run.hand_offs, all.over_nccl += run.over_nccl, all.failed += run.failed;
    all.broken += run.broken, all.aborts_hung += run.aborts_hung, all.lies += run.lies;
    all.moved += run.moved, all.seconds += run.seconds;
  }
  MESSAGE(count << " seeds, " << all.seconds / 3600 << " simulated hours, " << all.hand_offs
                << " hand-offs, " << all.over_nccl << " over NCCL, " << all.moved << " slots, "
                << all.failed << " attempts failed, " << all.broken << " pairs broke, "
                << all.aborts_hung << " aborts hung, " << all.lies << " lies");
  // It must have got there.
  CHECK(all.over_nccl > count);
  CHECK(all.broken > count / 10);
  CHECK(all.aborts_hung > count / 100);
  CHECK(all.lies > count / 100);
}

}  // namespace
}  // namespace headrace::sim
