#include "tests/sim/cluster.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "protocol/slowdown.h"
#include "tests/sim/campaign.h"
#include "tests/sim/seeds.h"

namespace headrace::sim {
namespace {

// HEADRACE_SIM_SEEDS, HEADRACE_SIM_FROM and HEADRACE_SIM_JOBS choose the seeds; HEADRACE_SIM_SEED
// replays one of them and prints its trace; HEADRACE_SIM_ERRORS=1 lists the stated errors. See
// tests/sim/run.
uint64_t number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

void complain(uint64_t seed, const std::vector<std::string>& problems) {
  std::string text = "seed " + std::to_string(seed) +
                     " fails; HEADRACE_SIM_SEED=" + std::to_string(seed) +
                     " replays it with its trace";
  for (const auto& p : problems) text += "\n  " + p;
  FAIL_CHECK(text);
}

TEST_CASE("under faults every answer is right or refused; without them everything ends") {
  if (const uint64_t seed = number("HEADRACE_SIM_SEED", 0); seed != 0) {
    ClusterOptions options = options_of(seed);
    options.trace = true;
    const ClusterReport report = run_cluster(options);
    MESSAGE(report.trace);
    if (!report.problems.empty()) complain(seed, report.problems);
    return;
  }
  const uint64_t seeds = number("HEADRACE_SIM_SEEDS", kSlowdown > 1 ? 60 : 10000);
  const uint64_t from = number("HEADRACE_SIM_FROM", 1);
  const auto jobs = static_cast<unsigned>(number("HEADRACE_SIM_JOBS", 2));
  const Campaign c = run_campaign(from, seeds, jobs);
  MESSAGE(c.summary() << "\n" << c.coverage.table());
  if (number("HEADRACE_SIM_ERRORS", 0) != 0)
    for (const auto& [message, n] : c.errors) MESSAGE(n, " x ", message);
  for (const auto& failure : c.failures) complain(failure.seed, failure.problems);
  if (seeds < 50 || !c.failures.empty()) return;
  // Every kind of misfortune happened, and nearly all was answered all the same.
  for (const char* what : {"complete", "handed over", "crashes", "cuts", "holds", "one-way cuts",
                           "freezes", "ambushes", "cancelled", "replays", "frames lost"})
    CHECK_MESSAGE(c.count(what) > 0, what);
  CHECK(c.count("failed") < c.count("complete") / 10);
  if (seeds < 2000) return;
  for (const char* what : {"preempted", "frames repeated", "frames overtaken", "frames flipped",
                           "slow nodes", "coordinator freezes"})
    CHECK_MESSAGE(c.count(what) > 0, what);
  CHECK_MESSAGE(c.coverage.missing() == "", "never met: ", c.coverage.missing());
}

TEST_CASE("one seed gives one run") {
  ClusterOptions o = options_of(12);
  const ClusterReport a = run_cluster(o);
  const ClusterReport b = run_cluster(o);
  CHECK(a.trace_hash == b.trace_hash);
  CHECK(a.events == b.events);
  o.seed = 13;
  CHECK(run_cluster(o).trace_hash != a.trace_hash);
}

TEST_CASE("without misfortune nothing fails, whatever the shape of the cluster") {
  for (const uint32_t n : {1u, 2u, 3u}) {
    for (const uint64_t seed : {116u, 164u}) {
      ClusterOptions o;
      o.seed = seed + n;
      o.prefill = o.decode = n;
      o.crashes_max = o.cuts_max = o.abandons_max = 0;
      const ClusterReport r = run_cluster(o);
      CHECK(r.problems.empty());
      CHECK(r.count("complete") == o.requests);
      CHECK(r.count("handed over") > 0);
      o.both = n;
      o.prefill = o.decode = 0;
      const ClusterReport s = run_cluster(o);
      for (const auto& problem : s.problems) FAIL_CHECK(problem);
      CHECK(s.count("complete") == o.requests);
    }
  }
}

}  // namespace
}  // namespace headrace::sim
