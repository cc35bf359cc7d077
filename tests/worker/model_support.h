#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/model_engine.h"
#include "worker/model_file.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

// Test models, devices and engines for the tests of the model's parts.
namespace headrace::worker {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// "tiny/base.gguf", made by tests/models.
inline std::string test_model(const std::string& name) {
  return std::string(HEADRACE_TEST_MODELS) + "/" + name;
}

// The real model: where the environment says, else where the test models are.
inline std::string real_model() {
  const char* named = std::getenv("HEADRACE_TEST_MODEL");
  return named != nullptr && *named != '\0' ? named : test_model("SmolLM2-135M-Instruct.Q4_1.gguf");
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), "cannot read " << path);
  return nlohmann::json::parse(in);
}

inline std::shared_ptr<const ModelFile> open_model(const std::string& path) {
  auto model = ModelFile::open(path);
  REQUIRE_MESSAGE(model.has_value(), (model ? "" : model.error().message));
  return *model;
}

struct NamedDevice {
  std::string name;
  bool reference;
  std::unique_ptr<kernels::Device> device;
};

inline std::vector<kernels::CpuPath> cpu_paths() {
  std::vector<kernels::CpuPath> out;
  for (const auto path : kernels::kCpuPaths)
    if (kernels::supported(path)) out.push_back(path);
  return out;
}

// The reference and every path of this processor.
inline std::vector<NamedDevice> all_devices(int threads = 2) {
  std::vector<NamedDevice> out;
  out.push_back({"reference", true, kernels::make_reference_device()});
  for (const auto path : cpu_paths())
    out.push_back({kernels::name(path), false, kernels::make_cpu_device(path, threads)});
  return out;
}

inline std::unique_ptr<ModelEngine> make_engine(std::shared_ptr<const ModelFile> file,
                                                std::unique_ptr<kernels::Device> device,
                                                EngineOptions options) {
  options.keep_logits = true;
  auto engine = ModelEngine::create(std::move(file), std::move(device), options);
  REQUIRE_MESSAGE(engine.has_value(), (engine ? "" : engine.error().message));
  return std::move(*engine);
}

inline StepDone run(ModelEngine& engine, Step step) {
  std::promise<StepDone> done;
  engine.run(std::move(step), [&](StepDone d) { done.set_value(std::move(d)); });
  return done.get_future().get();
}

// A sequence alone in blocks 0, 1, ...: its greedy answer and the logits after each row that
// sampled.
struct Answer {
  std::vector<Token> ids;
  std::vector<std::vector<float>> logits;
};

inline Answer generate(ModelEngine& engine, const std::vector<Token>& prompt, size_t tokens,
                       const Sampling& sampling = {}) {
  StepSequence s;
  const uint32_t t = engine.card().block_tokens;
  for (uint32_t b = 0; b * t < prompt.size() + tokens; b++) s.blocks.push_back(b);
  s.tokens = prompt;
  s.sample = true;
  s.sampling = sampling;
  Answer out;
  while (out.ids.size() < tokens) {
    const StepDone done = run(engine, Step{{s}});
    out.ids.push_back(done.sampled.at(0));
    out.logits.push_back(engine.last_logits().at(0));
    if (out.ids.back() < 0) break;
    s.position += static_cast<uint32_t>(s.tokens.size());
    s.tokens = {out.ids.back()};
    s.index++;
  }
  return out;
}

inline std::vector<Token> bytes_of(const std::string& text) {
  std::vector<Token> out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

}  // namespace headrace::worker
