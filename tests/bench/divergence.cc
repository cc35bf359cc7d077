// How far the answers of a device are from those of the reference (f32 activations, f32 KV, double
// sums) on a fixed text: the Kullback-Leibler divergence of their next-token distributions, and how
// often both would choose the same token. Greedy-fed: both see the same tokens at every position.
//
//   divergence MODEL TEXT.json [DEVICE]      TEXT.json: [{"ids": [...]}, ...]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <vector>

#include "worker/model_engine.h"

namespace headrace::worker {
namespace {

using Logits = std::vector<float>;

// Logits of every position of every text.
std::vector<Logits> logits_of(const std::string& path, std::unique_ptr<kernels::Device> device,
                              const std::vector<std::vector<Token>>& texts) {
  size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  auto file = ModelFile::open(path);
  if (!file) throw std::runtime_error(file.error().message);
  EngineOptions options;
  options.blocks = static_cast<uint32_t>((longest + 31) / 32);
  options.keep_logits = true;
  auto engine = ModelEngine::create(*file, std::move(device), options);
  if (!engine) throw std::runtime_error(engine.error().message);
  std::vector<Logits> all;
  for (const auto& text : texts) {
    for (uint32_t at = 0; at < text.size(); at++) {
      StepSequence s;
      for (uint32_t b = 0; b < options.blocks; b++) s.blocks.push_back(b);
      s.position = at;
      s.tokens = {text[at]};
      s.sample = true;
      std::promise<void> done;
      (*engine)->run(Step{{s}}, [&](const StepDone&) { done.set_value(); });
      done.get_future().wait();
      all.push_back((*engine)->last_logits()[0]);
    }
  }
  return all;
}

double log_sum(const Logits& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

double divergence(const Logits& right, const Logits& other) {
  const double p = log_sum(right), q = log_sum(other);
  double sum = 0;
  for (size_t i = 0; i < right.size(); i++) {
    const double log_right = right[i] - p;
    sum += std::exp(log_right) * (log_right - (other[i] - q));
  }
  return sum;
}

int run(const std::string& model, const std::string& file, kernels::CpuPath path) {
  std::vector<std::vector<Token>> texts;
  std::ifstream in(file);
  for (const auto& text : nlohmann::json::parse(in)) texts.push_back(text["ids"]);
  const auto right = logits_of(model, kernels::make_reference_device(), texts);
  const auto other = logits_of(model, kernels::make_cpu_device(path, 0), texts);
  std::vector<double> all;
  size_t same = 0;
  for (size_t i = 0; i < right.size(); i++) {
    all.push_back(divergence(right[i], other[i]));
    const auto best = [](const Logits& l) {
      return std::max_element(l.begin(), l.end()) - l.begin();
    };
    same += best(right[i]) == best(other[i]) ? 1 : 0;
  }
  double mean = 0;
  for (const double d : all) mean += d / static_cast<double>(all.size());
  std::sort(all.begin(), all.end());
  std::printf(
      "cpu:%s against the reference, %zu positions: KL divergence mean %.6f, p99 %.6f, most "
      "%.6f; same first choice %.2f %%\n",
      kernels::name(path), all.size(), mean, all[all.size() * 99 / 100], all.back(),
      100.0 * static_cast<double>(same) / static_cast<double>(all.size()));
  return 0;
}

}  // namespace
}  // namespace headrace::worker

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: divergence MODEL TEXT.json [portable|avx2|avx512vnni|amx]\n");
    return 2;
  }
  const auto path = argc > 3 ? headrace::kernels::parse_cpu_path(argv[3])
                             : std::optional(headrace::kernels::best_cpu_path());
  if (!path || !headrace::kernels::supported(*path)) {
    std::fprintf(stderr, "divergence: no such path here\n");
    return 2;
  }
  try {
    return headrace::worker::run(argv[1], argv[2], *path);
  } catch (const std::exception& why) {
    std::fprintf(stderr, "divergence: %s\n", why.what());
    return 1;
  }
}
