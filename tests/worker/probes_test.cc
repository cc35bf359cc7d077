#include "worker/probes.h"

#include <doctest/doctest.h>

#include <string>

namespace headrace::worker {
namespace {

TEST_CASE("kinds of steps have the names of the dashboard") {
  CHECK(std::string(name(StepKind::kPrefill)) == "prefill");
  CHECK(std::string(name(StepKind::kDecode)) == "decode");
  CHECK(std::string(name(StepKind::kMixed)) == "mixed");
}

TEST_CASE("probes that nobody wrote do nothing") {
  Probes probes;
  probes.step({});
  probes.handoff({});
  probes.gauges({});
  probes.prefix(2, 1);
  probes.preempted();
  probes.failed(Errc::kNumeric);
  probes.refused(Errc::kOverloaded);
}

}  // namespace
}  // namespace headrace::worker
