// The GPU as the engine's device, on the emulator: whole models against the reference device, and
// promise 1 in process: neighbours, chunks, padding, graphs and places in the pool change no bit.
#include "kernels/cuda_device.h"

#include <cmath>

#include "tests/simt/cudart/control.h"
#include "tests/simt/order.h"
#include "tests/worker/identity.h"

// Last: its CHECK replaces ours.
#include "tests/simt/engine/cublaslt_case.h"

namespace headrace::worker {
namespace {

using kernels::CudaOptions;
using kernels::KvType;

std::unique_ptr<kernels::Device> cuda_device(CudaOptions options = {}) {
  return kernels::make_cuda_device(options);
}

std::unique_ptr<ModelEngine> engine_of(const std::string& variant, uint32_t block_tokens,
                                       CudaOptions device = {}) {
  EngineOptions options;
  options.block_tokens = block_tokens;
  options.blocks = 1600 / block_tokens;
  options.rows_max = 128;
  return make_engine(open_model(test_model("tiny/" + variant + ".gguf")), cuda_device(device),
                     options);
}

// Root of the mean square of the difference over that of the right values.
double distance(const std::vector<float>& got, const std::vector<float>& right) {
  double error = 0, size = 0;
  for (size_t i = 0; i < right.size(); i++) {
    error += std::pow(double{got[i]} - right[i], 2);
    size += std::pow(double{right[i]}, 2);
  }
  return std::sqrt(error / size);
}

// Rounding of x to bf16 (2^-9 of each) is what differs; fp8 has 2^-4 of each key and value.
double tolerance(KvType kv) { return kv == KvType::kFp8 ? 0.2 : 0.03; }

TEST_CASE("the logits are those of the reference device, for every weight and KV type") {
  const auto prompt = noise_tokens(40, 259, 5);
  for (const std::string variant : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"}) {
    CAPTURE(variant);
    const std::string name = variant == "f32" ? "base" : variant;
    EngineOptions options;
    options.blocks = 8;
    const auto reference = make_engine(open_model(test_model("tiny/" + name + ".gguf")),
                                       kernels::make_reference_device(), options);
    const Answer right = generate(*reference, prompt, 1);
    for (const KvType kv : {KvType::kF16, KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
      if (kv != KvType::kF16 && name != "q4_1") continue;
      CAPTURE(kernels::name(kv));
      const auto engine = engine_of(name, 32, {.kv_type = kv});
      const Answer got = generate(*engine, prompt, 1);
      CHECK(distance(got.logits[0], right.logits[0]) < tolerance(kv));
      CHECK(distance(got.logits[0], right.logits[0]) > 0);
    }
  }
}

void check_every_way(const std::string& variant, uint32_t block_tokens, Request request,
                     KvType kv = KvType::kF16) {
  CAPTURE(variant);
  const auto engine = engine_of(variant, block_tokens, {.kv_type = kv});
  const auto eager = engine_of(variant, block_tokens, {.kv_type = kv, .graphs = false});
  const Trace alone = trace(*engine, {request}, {});
  REQUIRE(alone.ids.size() == request.answer);
  CHECK(std::ranges::all_of(alone.ids, [](Token t) { return t >= 0; }));
  CHECK(trace(*eager, {request}, {}) == alone);
  const uint32_t vocab = engine->file().known_tokens();
  CHECK(trace(*engine, {request}, {16, 1, 0}) == alone);
  CHECK(trace(*engine, crowd(2, 1, request, vocab, 40), {64, 2, 1}) == alone);
  CHECK(trace(*eager, crowd(7, 3, request, vocab, 30), {128, 3, 3}) == alone);
  if (!kSanitized) CHECK(trace(*engine, crowd(16, 11, request, vocab, 20), {48, 4, 11}) == alone);
}

// Operations run at once and the host is trusted: what waits are missing is seen above.
struct Quick {
  Quick() {
    simt::reset(simt::Streams::kEager);
    simt::set_host_guard(false);
  }
  ~Quick() { simt::reset(); }
};

TEST_CASE("neighbours, chunks, graphs and places change no bit") {
  const Quick quick;
  check_every_way("q4_1", 16, {noise_tokens(140, 259, 77), 6, {}});
  const Sampling sampling{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 9};
  check_every_way("q4_0", 32, {noise_tokens(125, 259, 78), 6, sampling});
  check_every_way("q8_0", 64, {noise_tokens(66, 259, 79), 4, {}}, KvType::kInt8);
  if (kSanitized) return;
  check_every_way("bf16", 32, {noise_tokens(66, 259, 80), 4, {}}, KvType::kBf16);
  check_every_way("f16", 16, {noise_tokens(66, 259, 81), 4, {}}, KvType::kFp8);
}

TEST_CASE("the order in which threads run changes no bit") {
  const Quick quick;
  const Request request{noise_tokens(40, 259, 7), 3, {}};
  const Trace first = trace(*engine_of("q4_1", 16), {request}, {});
  for (const simt::Order& order : simt::orders()) {
    if (kSanitized && !(order == simt::orders().back())) continue;
    CAPTURE(simt::to_string(order));
    simt::set_order(order);
    CHECK(trace(*engine_of("q4_1", 16), {request}, {}) == first);
  }
  simt::set_order({});
}

TEST_CASE("with cuBLASLt a long prompt's logits are near the exact ones, a short one's are those") {
  const simt::StandIn standin;
  const Quick quick;
  const auto logits = [](bool library, size_t tokens) {
    EngineOptions options;
    options.blocks = 16;
    options.rows_max = 320;
    const auto engine = make_engine(open_model(test_model("tiny/q4_0.gguf")),
                                    cuda_device({.library = library}), options);
    return generate(*engine, noise_tokens(tokens, 259, 15), 1).logits[0];
  };
  const auto exact = logits(false, 270);
  CHECK(distance(logits(true, 270), exact) < 0.03);
  CHECK(distance(logits(true, 270), exact) > 0);
  CHECK(logits(true, 200) == logits(false, 200));
}

TEST_CASE("a device that fails is the end of it: the engine says so and gives no token") {
  std::string why;
  EngineOptions options;
  options.blocks = 8;
  options.rows_max = 16;
  options.device_lost = [&](const std::string& text) { why = text; };
  const auto engine = make_engine(open_model(test_model("tiny/q4_0.gguf")), cuda_device(), options);
  CHECK(generate(*engine, {1, 2, 3}, 1).ids[0] >= 0);
  simt::fail_launch(5);
  StepSequence step;
  step.blocks = {0};
  step.tokens = {1, 2};
  step.sample = true;
  CHECK(run(*engine, Step{{step}}).sampled[0] == StepDone::kNumeric);
  CHECK(why.find("cuda:0") == 0);
  simt::reset();
}

TEST_CASE("memory that is not there is said before anything runs") {
  EngineOptions options;
  options.blocks = 1 << 14;
  simt::reset(simt::Streams::kLazy);
  simt::set_memory(0, 16 << 20);
  const auto made =
      ModelEngine::create(open_model(test_model("tiny/q4_0.gguf")), cuda_device(), options);
  simt::reset();
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == Errc::kOverloaded);
}

TEST_CASE("devices are counted, named and refused") {
  std::string why;
  const int count = kernels::cuda_devices(&why);
  REQUIRE(count >= 1);
  CHECK(cuda_device()->name().find("cuda:0 ") == 0);
  CHECK_THROWS_WITH_AS(cuda_device({.ordinal = count}), doctest::Contains("GPUs, numbered from 0"),
                       kernels::DeviceError);
  CHECK_THROWS_AS(cuda_device({.kv_type = KvType::kF32}), kernels::DeviceError);
  CHECK(cuda_device()->memory_free().has_value());
  const auto device = cuda_device();
  CHECK(device->padded(3, true) == 4);
  CHECK(device->padded(9, true) == 16);
  CHECK(device->padded(3, false) == 3);
}

}  // namespace
}  // namespace headrace::worker
