#include "deploy/cli/demo_wall.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

TEST_CASE("what is counted of the demo's own mixes") {
  DemoReport report;
  serve_demos(report);
  REQUIRE(report.rooms.size() == 2);
  REQUIRE(report.orders.size() == 2);
  const DemoServingRow &whole = report.rooms[0], &pages = report.rooms[1];
  CHECK(whole.measured.admitted == 8);
  CHECK(pages.measured.admitted > whole.measured.admitted);
  CHECK(pages.measured.waste < whole.measured.waste);
  // The lengths alone say nearly the same.
  CHECK(pages.measured.admitted == doctest::Approx(pages.predicted.admitted).epsilon(0.1));
  CHECK(pages.measured.waste == doctest::Approx(pages.predicted.waste).epsilon(0.2));
  for (const DemoServingRow& row : report.orders) CHECK(row.measured.steps == row.predicted.steps);
  CHECK(report.orders[1].measured.idle < report.orders[0].measured.idle);
}

TEST_CASE("the whole of it on a tiny shape") {
  const DemoOptions options{.device = "cpu", .threads = 1, .seconds = 1, .small = true};
  double last = 0;
  const auto report = demo_wall(options, [&last](double share) {
    CHECK(share >= last);
    last = share;
  });
  REQUIRE_MESSAGE(report, report.error().message);
  CHECK(last == 1);
  REQUIRE(report->phases.size() == 2);
  CHECK(report->phases[0].flops_per_byte() > report->phases[1].flops_per_byte());
  REQUIRE(report->formats.size() == 3);
  for (size_t i = 1; i < 3; i++)
    CHECK(report->formats[i].weight_bytes() < report->formats[i - 1].weight_bytes());
  REQUIRE(report->batches.size() == 3);
  for (const DemoRow& row : report->batches)
    CHECK(row.weight_bytes() == report->batches[0].weight_bytes());
  REQUIRE(report->contexts.size() == 4);
  for (size_t i = 1; i < 4; i++) {
    CHECK(report->contexts[i].cost.kv_bytes > report->contexts[i - 1].cost.kv_bytes);
    CHECK(report->contexts[i].predicted >= report->contexts[i - 1].predicted);
  }
  CHECK(report->slope_predicted == doctest::Approx(static_cast<double>(report->kv_token_bytes) /
                                                   report->contexts[0].read_limit));
}

}  // namespace
}  // namespace headrace::cli
