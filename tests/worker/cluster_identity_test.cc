// One request gives the same bits (served.h) alone or in a batch, whole or in chunks, on one worker
// or handed over, on every path of the processor.
#include "tests/worker/served.h"

namespace headrace::worker {
namespace {

constexpr uint32_t kAnswer = 12;

const Subject& cpu() {
  static const Subject subject{open_model(test_model("tiny/q8_0.gguf"))};
  return subject;
}

// Lengths around blocks (16) and attention slices (256).
const std::vector<RealRequest>& requests() {
  static const auto all =
      prompts_of({1, 2, 15, 16, 17, 18, 33, 48, 64, 65, 100, 129, 200, 257, 290, 330}, kAnswer);
  return all;
}

const Served& right() {
  static const Served served = alone(cpu(), requests());
  return served;
}

TEST_CASE("answers are there to be compared") {
  const Served& o = right();
  for (const RealAnswer& a : o.answers) {
    CHECK(a.status.ok());
    CHECK((a.ids.size() == kAnswer || a.finish == Finish::kStop));
    CHECK(!a.remote);
  }
  CHECK(o.answers[3].ids != o.answers[4].ids);
  CHECK(o.logits.size() >= 16 * 4);
}

TEST_CASE("batches, chunk budgets, roles, pools and transports change no bit") {
  check_arrangements(cpu(), requests(), right(),
                     {.pools = {0, 1, 2, 3},
                      .budgets = {16, 64, 512},
                      .batches = {2, 7, 16},
                      .every = kSanitized ? 5 : 1});
}

TEST_CASE("every path of the processor gives the same bits") {
  for (const auto path : cpu_paths()) {
    CAPTURE(kernels::name(path));
    RealOptions o = pool(1);
    o.batch = 7;
    o.path = path;
    check_same(serve(cpu(), o, requests()), right());
  }
}

}  // namespace
}  // namespace headrace::worker
