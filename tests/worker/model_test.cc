#include "worker/model.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/worker/gguf_builder.h"
#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

// Each stored type against logits worked out in double from the weights as stored.
TEST_CASE("every weight type gives the right logits") {
  EngineOptions options;
  options.blocks = 4;
  for (const std::string name :
       {"base", "tied", "linear", "llama3", "odd", "f16", "bf16", "q8_0", "q4_0", "q4_1"}) {
    const auto file = open_model(test_model("tiny/" + name + ".gguf"));
    const auto right = read_json(test_model("tiny/" + name + ".json"));
    const auto prompt = right["prompt_ids"].get<std::vector<Token>>();
    const auto logits = right["last_logits"].get<std::vector<double>>();
    for (NamedDevice& d : all_devices()) {
      CAPTURE(name);
      CAPTURE(d.name);
      const bool quantized = name[0] == 'q' && !d.reference;
      const auto engine = make_engine(file, std::move(d.device), options);
      const Answer answer = generate(*engine, prompt, 1);
      double worst = 0;
      for (size_t i = 0; i < logits.size(); i++)
        worst = std::max(worst, std::abs(double{answer.logits[0][i]} - logits[i]));
      MESSAGE(name << " on " << d.name << ": largest difference of a logit " << worst);
      // f32 arithmetic; f16 KV; int8 activations.
      CHECK(worst < (d.reference ? 1e-4 : quantized ? 0.25 : 2e-2));
    }
  }
}

// Mixed types take both forms of the activations.
TEST_CASE("a layer of mixed types computes what one of equal types does") {
  const auto answer = [](const GgufBuilder& b, std::unique_ptr<kernels::Device> device) {
    const TempFile file(b.bytes());
    EngineOptions options;
    options.blocks = 2;
    const auto engine = make_engine(open_model(file.path()), std::move(device), options);
    return generate(*engine, {0, 1, 2}, 3).logits;
  };
  GgufBuilder plain, mixed;
  plain.tensor("token_embd.weight", {32, 4}, 0.25f);
  mixed.tensor("token_embd.weight", {32, 4}, 0.25f);
  plain.tensor("blk.0.attn_k.weight", {32, 16}, 0.5f);
  const uint16_t half = 0x3800;  // 0.5 as f16
  float bits = 0;
  std::memcpy(&bits, &half, 2);
  mixed.tensor("blk.0.attn_k.weight", {32, 16}, bits, 1);
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    auto twin = d.reference ? kernels::make_reference_device()
                            : kernels::make_cpu_device(*kernels::parse_cpu_path(d.name), 2);
    CHECK(answer(plain, std::move(d.device)) == answer(mixed, std::move(twin)));
  }
}

}  // namespace
}  // namespace headrace::worker
