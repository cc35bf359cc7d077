#pragma once

#include <span>

#include "protocol/messages.h"

namespace headrace {

// Message <-> wire and nothing else; the only user of mesh.capnp. Encoding never fails. Decoding
// takes any bytes: kInvalid with the field at fault, never a crash; a list longer than its limit
// (protocol/README.md) is refused before it is copied.
Bytes encode(const ToWorker& message);
Bytes encode(const ToCoordinator& message);
Bytes encode(const TokenizerData& data);
Result<ToWorker> decode_to_worker(std::span<const std::byte> frame);
Result<ToCoordinator> decode_to_coordinator(std::span<const std::byte> frame);
Result<TokenizerData> decode_tokenizer(std::span<const std::byte> bytes);

}  // namespace headrace
