// Prints digests of one request's tokens, logits and KV bytes on the tiny q8_0 model, with a
// context beyond one attention slice. Two builds that print the same give the same bits; a build
// with another slice size must print another `logits` (its ctest compares the two).
#define DOCTEST_CONFIG_DISABLE  // the helpers' assertions: here a failure shows in the digests
#include <xxhash.h>

#include <cinttypes>
#include <cstdio>

#include "tests/worker/identity.h"

namespace headrace::worker {
namespace {

// Digest of several pieces in a row.
class Sum {
 public:
  void add(const void* data, size_t bytes) { sum_ = XXH3_64bits_withSeed(data, bytes, sum_); }
  uint64_t value() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

int print() {
  const auto file = ModelFile::open(test_model("tiny/q8_0.gguf"));
  if (!file) return std::fprintf(stderr, "%s\n", file.error().message.c_str()), 1;
  EngineOptions options;
  options.blocks = 16;
  options.keep_logits = true;
  auto engine =
      ModelEngine::create(*file, kernels::make_cpu_device(kernels::best_cpu_path(), 2), options);
  if (!engine) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;
  const Trace t = trace(**engine, {{noise_tokens(300, 259, 77), 24, {}}}, {});
  Sum ids, logits, kv;
  ids.add(t.ids.data(), t.ids.size() * sizeof(Token));
  for (const auto& row : t.logits) logits.add(row.data(), row.size() * sizeof(float));
  for (const auto& block : t.blocks) kv.add(block.data(), block.size());
  std::printf("slice %d\nids %016" PRIx64 "\nlogits %016" PRIx64 "\nkv %016" PRIx64 "\n",
              kernels::kAttentionSlice, ids.value(), logits.value(), kv.value());
  return 0;
}

}  // namespace
}  // namespace headrace::worker

int main() { return headrace::worker::print(); }
