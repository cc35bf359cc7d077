#pragma once

#include <functional>
#include <vector>

#include "protocol/codec.h"

namespace headrace {

// One of every message, empty, ordinary and extreme: what the tests of the codec send round.
std::vector<ToWorker> sample_to_worker();
std::vector<ToCoordinator> sample_to_coordinator();
std::vector<TokenizerData> sample_tokenizers();

// Decoding `frame` cut at every length, and `rounds` seeded mutations of it, gives a value or a
// clear kInvalid; sanitizers watch the rest. Returns how many were refused.
size_t torture(std::span<const std::byte> frame, size_t rounds,
               const std::function<Status(std::span<const std::byte>)>& decode);

}  // namespace headrace
