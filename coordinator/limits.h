#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/slowdown.h"
#include "protocol/strand.h"

namespace headrace::coordinator {

// Every limit and deadline of the coordinator. Past one of them the answer is an immediate refusal
// that names it; the table in README.md repeats them for people.

// Requests.
inline constexpr size_t kQueueMax = 1024;           // requests waiting for a worker
inline constexpr Duration kQueueWait = 30s;         // of one request, in all
inline constexpr size_t kPromptBytesMax = 1 << 20;  // text of a prompt, all messages together
inline constexpr uint32_t kUnacknowledgedMax = 64;  // tokens under way to one client
inline constexpr Duration kClientStall = 60s;       // a finished answer that nobody takes
inline constexpr int kAttemptsMax = 3;              // failed attempts after which a request ends
inline constexpr uint32_t kGrowthReserve = 256;     // tokens of answer that routing reserves
// How long requests wait once the last worker that could decode is gone.
inline constexpr Duration kNoWorkerWait = 3s;

// Workers.
inline constexpr size_t kWorkersMax = 1024;
inline constexpr Duration kRegisterWithin = 1500ms * kSlowdown;  // of a fresh link
inline constexpr Duration kSilence = 1500ms * kSlowdown;         // no beat: dead
inline constexpr Duration kBeatEvery = 250ms;
inline constexpr Duration kSweepEvery = 100ms;
inline constexpr Duration kSweepPause = 10ms;  // before a sweep that comes late

// One attempt.
inline constexpr Duration kGrantWithin = 500ms * kSlowdown;
// A step has to end: at least, and for workers whose speed is not known (step_patience).
inline constexpr Duration kProgressWithin = 5s * kSlowdown;
inline constexpr Duration kProgressWithinMax = 35s * kSlowdown;
inline constexpr uint64_t kStepTokens = 512;  // of the longest step that is expected
inline constexpr int kStepFactor = 8;         // over its predicted time
inline constexpr Duration kStreamingWithin = 30s * kSlowdown;  // steps over, blocks on their way
inline constexpr Duration kOwnedWithin = 5s * kSlowdown;       // PrefillDone to Owned
inline constexpr Duration kBackoffMin = 50ms;                  // after a refusal or a failure
inline constexpr Duration kBackoffMax = 1s;
inline constexpr Duration kClosingWithin = 60s;  // a cancelled attempt that never says Quiesced
inline constexpr size_t kClosingMax = 65536;

// Tokenizer.
inline constexpr uint64_t kTokenizerBytesMax = 64u << 20;
inline constexpr uint64_t kTokenizerPieceMax = 1u << 20;
inline constexpr Duration kTokenizerPieceWithin = 2s * kSlowdown;

}  // namespace headrace::coordinator
