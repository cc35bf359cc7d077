// The real model through the GPU's kernels, on the emulator: two prompts of the independent right
// values (tests/data/smollm2.json), and the first tokens of their greedy continuations.

#include "kernels/cuda_device.h"
#include "tests/simt/cudart/control.h"
#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

#ifdef NDEBUG
constexpr size_t kAnswer = 4;
// As for the processor's paths: a choice that another is so little behind may fall otherwise.
constexpr double kSure = 0.4;

TEST_CASE("the real model's first tokens are the right ones") {
  if (kSanitized) return;
  simt::reset(simt::Streams::kEager);
  simt::set_host_guard(false);
  EngineOptions options;
  options.block_tokens = 16;
  options.blocks = 4;
  options.rows_max = 40;
  const auto engine = make_engine(open_model(real_model()), kernels::make_cuda_device({}), options);
  size_t sure = 0;
  for (const auto& p : read_json(std::string(HEADRACE_TEST_DATA) + "/smollm2.json")) {
    if (p["name"] != "story" && p["name"] != "code") continue;
    CAPTURE(p["name"].get<std::string>());
    const auto greedy = p["greedy"].get<std::vector<Token>>();
    const auto margin = p["margin"].get<std::vector<double>>();
    const Answer got = generate(*engine, p["ids"].get<std::vector<Token>>(), kAnswer);
    for (size_t i = 0; i < kAnswer; i++) {
      CAPTURE(i);
      CHECK((margin[i] < kSure || got.ids[i] == greedy[i]));
      if (got.ids[i] != greedy[i]) break;  // from here on it is another text
      sure += margin[i] >= kSure;
    }
  }
  CHECK(sure >= 5);
  simt::reset();
}
#endif

}  // namespace
}  // namespace headrace::worker
