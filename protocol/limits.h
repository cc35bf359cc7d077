#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/strand.h"

namespace headrace::limits {

// What a message may carry at most; the decoder refuses more and names the limit (README.md).
constexpr size_t kPromptTokens = 1u << 20;
constexpr size_t kBlocks = 65'536;    // of one grant
constexpr size_t kRuns = 4'096;       // of one Tokens
constexpr size_t kRunTokens = 4'096;  // of one run
constexpr size_t kTransfers = 4'096;  // named in one Beat or Ping
constexpr size_t kEndTokens = 4'096;
constexpr size_t kLogitBias = 1'024;     // entries of one request
constexpr size_t kLogprobs = 20;         // alternatives per token
constexpr size_t kPrefixEvents = 4'096;  // of one Beat
constexpr size_t kReadPoints = 16;
constexpr size_t kStringBytes = 64u << 10;
constexpr size_t kVocabulary = 1u << 20;  // tokens of a tokenizer
constexpr size_t kMerges = 1u << 21;
constexpr size_t kPieceBytes = 1u << 20;        // of one TokenizerPiece
constexpr size_t kTokenizerBytes = 256u << 20;  // of one encoded TokenizerData
// Durations beyond it, either sign, are refused; encoding clamps to it. Added to any now() it
// cannot overflow.
constexpr Duration kDuration = std::chrono::hours(24 * 365);

// Of the wire form itself.
constexpr size_t kFrameBytes = 8u << 20;  // = LinkLimits::frame_bytes_max
constexpr uint32_t kSegments = 64;
constexpr int kNesting = 32;
constexpr uint64_t kTraversalFactor = 4;  // bytes visited over bytes received

}  // namespace headrace::limits
