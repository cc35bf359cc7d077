#include "tests/sim/cluster.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "coordinator/limits.h"

namespace headrace::sim {
namespace {

// HEADRACE_SIM_SEEDS and HEADRACE_SIM_FROM choose the seeds; HEADRACE_SIM_SEED replays one of them
// and prints its trace; HEADRACE_SIM_ERRORS=1 lists the stated errors. See tests/sim/run.
uint64_t number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

// What a seed means. Every fourth has flipped bits, every fifth is quiet, some have other pools.
ClusterOptions options_of(uint64_t seed) {
  ClusterOptions o;
  o.seed = seed;
  if (seed % 5 == 0) {
    o.crashes_max = o.cuts_max = 0;
  } else if (seed % 4 == 0) {
    o.flip_one_in = 60;
  }
  if (seed % 7 == 0) o.pd = coordinator::PdMode::kAuto;
  if (seed % 11 == 0) {  // few blocks, long answers: growth has to preempt
    o.engine.blocks = 44;
    o.tokens_max = 480;
  }
  return o;
}

void complain(uint64_t seed, const ClusterReport& report) {
  std::string text = "seed " + std::to_string(seed) +
                     " fails; HEADRACE_SIM_SEED=" + std::to_string(seed) +
                     " replays it with its trace";
  for (const auto& p : report.problems) text += "\n  " + p;
  FAIL_CHECK(text);
}

TEST_CASE(
    "crashed workers, cut links, late messages, flipped bits: every answer right or refused") {
  if (const uint64_t seed = number("HEADRACE_SIM_SEED", 0); seed != 0) {
    const ClusterReport report = run_cluster(options_of(seed));
    MESSAGE(report.trace);
    if (!report.problems.empty()) complain(seed, report);
    return;
  }
  const uint64_t seeds = number("HEADRACE_SIM_SEEDS", kSlowdown > 1 ? 60 : 1000);
  const uint64_t from = number("HEADRACE_SIM_FROM", 1);
  ClusterReport sum;
  int bad = 0;
  for (uint64_t seed = from; seed < from + seeds && bad < 5; ++seed) {
    const ClusterReport r = run_cluster(options_of(seed));
    if (!r.problems.empty()) {
      complain(seed, r);
      ++bad;
    }
    sum.complete += r.complete;
    sum.cancelled += r.cancelled;
    sum.failed += r.failed;
    for (const auto& [message, n] : r.errors) sum.errors[message] += n;
    sum.remote += r.remote;
    sum.crashes += r.crashes;
    sum.cuts += r.cuts;
    sum.flips += r.flips;
    sum.preempted += r.preempted;
    sum.failed_attempts += r.failed_attempts;
    sum.seconds += r.seconds;
  }
  MESSAGE(seeds, " seeds, ", sum.seconds, " s of virtual time: ", sum.complete, " complete (",
          sum.remote, " handed over), ", sum.cancelled, " cancelled, ", sum.failed, " failed; ",
          sum.crashes, " crashes, ", sum.cuts, " cuts, ", sum.flips, " flips, ",
          sum.failed_attempts, " failed attempts, ", sum.preempted, " preempted");
  if (number("HEADRACE_SIM_ERRORS", 0) != 0) {
    for (const auto& [message, n] : sum.errors) MESSAGE(n, " x ", message);
  }
  CHECK(sum.complete > 0);
  if (seeds < 50) return;
  // Every kind of misfortune happened, and nearly all was answered all the same.
  CHECK(sum.remote > sum.complete / 2);
  CHECK(sum.crashes > seeds / 2);
  CHECK(sum.cuts > seeds / 4);
  CHECK(sum.flips > seeds / 10);
  CHECK(sum.failed_attempts > seeds / 10);
  CHECK(sum.cancelled > seeds / 20);
  if (seeds >= 500) CHECK(sum.preempted > 0);
  CHECK(sum.failed < sum.complete / 50);
}

TEST_CASE("one seed gives one run") {
  ClusterOptions o = options_of(12);
  const ClusterReport a = run_cluster(o);
  const ClusterReport b = run_cluster(o);
  CHECK(a.trace_hash == b.trace_hash);
  o.seed = 13;
  CHECK(run_cluster(o).trace_hash != a.trace_hash);
}

TEST_CASE("other shapes of cluster answer alike") {
  for (const uint32_t n : {1u, 2u, 3u}) {
    for (const uint32_t budget : {16u, 64u}) {
      ClusterOptions o;
      o.seed = 100 + n + budget;
      o.prefill = o.decode = n;
      o.crashes_max = o.cuts_max = o.abandons_max = 0;
      const ClusterReport r = run_cluster(o);
      CHECK(r.problems.empty());
      CHECK(r.complete == o.requests);
      CHECK(r.remote > 0);
      o.both = n;
      o.prefill = o.decode = 0;
      const ClusterReport s = run_cluster(o);
      CHECK(s.problems.empty());
      CHECK(s.complete == o.requests);
    }
  }
}

}  // namespace
}  // namespace headrace::sim
