// Any bytes as a client's request, behind the segment check that the guarded stream makes.
#include <capnp/serialize.h>

#include <cmath>
#include <cstring>

#include "coordinator/gateway_words.h"
#include "coordinator/sampling_limits.h"
#include "tests/fuzz/input.h"

namespace headrace {
namespace {

constexpr uint32_t kVocabulary = 261;

void read_words(kj::ArrayPtr<const capnp::word> words) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 4 * words.size() + 64;
  options.nestingLimit = 32;
  capnp::FlatArrayMessageReader reader(words, options);
  const auto request = coordinator::read_request(reader.getRoot<api::GenerateRequest>());
  if (!request) {
    CHECK(!request.error().message.empty());
    return;
  }
  const Sampling& s = request->sampling;
  if (!coordinator::check_sampling(s, kVocabulary).ok()) return;
  CHECK(std::isfinite(s.temperature) && s.temperature >= 0);
  CHECK(s.top_p > 0 && s.top_p <= 1);
  CHECK(s.min_p >= 0 && s.min_p <= 1);
  for (const auto& [token, bias] : s.bias) {
    CHECK(token >= 0 && static_cast<uint32_t>(token) < kVocabulary && std::isfinite(bias));
  }
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto words = kj::heapArray<capnp::word>(size / sizeof(capnp::word));
  std::memcpy(words.begin(), data, words.size() * sizeof(capnp::word));
  // The library's own reader of flat arrays trusts the table no further than the array.
  if (words.size() == 0) return 0;
  if (auto thrown = kj::runCatchingExceptions([&] { headrace::read_words(words); });
      thrown != nullptr) {
    return 0;  // a malformed message: the call fails
  }
  return 0;
}
