#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/slowdown.h"
#include "protocol/strand.h"

namespace headrace::coordinator {

// Every limit and deadline of the coordinator. Past one of them the answer is an immediate refusal
// that names it; the table in README.md repeats them for people.

// Requests.
inline constexpr size_t kQueueMax = 1024;           // requests waiting for a worker, of each rank
inline constexpr Duration kQueueWait = 30s;         // of one request, in all
inline constexpr size_t kPromptBytesMax = 1 << 20;  // text of a prompt, all messages together
inline constexpr uint32_t kUnacknowledgedMax = 64;  // tokens under way to one client
inline constexpr Duration kClientStall = 60s;       // a finished answer that nobody takes
inline constexpr int kAttemptsMax = 3;              // failures in a row without a new token: ends
inline constexpr int kFailuresMax = 16;             // failures in all: ends
inline constexpr int kGapsMax = 8;                  // gaps in its tokens that are no failures
inline constexpr uint32_t kGrowthReserve = 256;     // tokens of answer that routing reserves
inline constexpr size_t kStopsMax = 16;             // stop texts of a request
inline constexpr size_t kStopBytesMax = 256;        // of one of them
inline constexpr size_t kStopTokensMax = 64;
inline constexpr size_t kCacheSaltBytesMax = 256;
inline constexpr size_t kMessagesMax = 4096;               // of a chat
inline constexpr size_t kTextWaitingBytesMax = 32u << 20;  // prompts that are not tokens yet
inline constexpr size_t kDetokenizeIdsMax = 1 << 20;       // of one question
inline constexpr size_t kDetokenizeBytesMax = 1 << 20;     // text of one answer to it
// How far decoding may run ahead of a client; past it the answer waits without a worker. Who takes
// nothing must not crowd out those who do: answers of which no token was taken yet share
// kBehindShared, each at least kBehindLeast and at most kBehindFirst; each token that is taken
// earns kBehindGrowth more.
inline constexpr uint32_t kBehindLeast = 4;
inline constexpr uint32_t kBehindFirst = 64;
inline constexpr uint32_t kBehindShared = 256;
inline constexpr uint32_t kBehindGrowth = 8;
inline constexpr uint32_t kBehindMax = 4096;
// Clients of whom nothing is known yet (standing.h): one of their requests goes first after so many
// of others; while others are served, and for kKnownFor after, those on a worker that wait for
// their client's first sign may together slow its steps by 1 / kStrangersSlow as predicted, and are
// at least kStrangersLeast, and what runs ahead of strangers is kStrangersShared for all of them,
// those who wait counted in, at least one token each. A connection's trust, in answers.
inline constexpr uint32_t kKnownTurns = 3;
inline constexpr uint32_t kStrangersLeast = 2;
inline constexpr int kStrangersSlow = 8;
inline constexpr uint32_t kStrangersShared = 64;
inline constexpr Duration kKnownFor = 2s;
inline constexpr uint32_t kTrustMax = 256;
inline constexpr Duration kResumeWithin = 30s;          // a resumable request without client
inline constexpr Duration kRetainedFor = 10min;         // the end of a resumable request
inline constexpr size_t kRetainedMax = 1024;            // such ends; the oldest goes first
inline constexpr size_t kRetainedBytesMax = 64u << 20;  // of all of them
// How long requests wait once the last worker that could decode is gone, or only such are left that
// drain: longer than a supervisor needs to put another in its place.
inline constexpr Duration kNoWorkerWait = 6s * kSlowdown;

// Workers.
inline constexpr size_t kWorkersMax = 1024;
// What one may announce: bytes of a name, device or host, blocks, rates a second, sequences.
inline constexpr size_t kWorkerTextMax = 256;
inline constexpr uint32_t kWorkerBlocksMax = 1u << 26;
inline constexpr double kRateMax = 1e18;
inline constexpr uint32_t kWorkerRunningMax = 1u << 20;
inline constexpr uint64_t kWorkerTokensMax = 1u << 30;           // of prompts, for predictions
inline constexpr Duration kRegisterWithin = 1500ms * kSlowdown;  // of a fresh link
inline constexpr size_t kRegisterBytesMax = 256u << 10;          // its frame
inline constexpr Duration kSilence = 1200ms * kSlowdown;         // no word: dead
inline constexpr Duration kBeatEvery = 200ms;                    // and a Ping as often
// A worker of the same name takes the place of one from which nothing came for so long.
// One that is heard so long after its namesake came first, and answers a Ping sent since, lives:
// that one is refused. If it does not come again for kNameRival, this begins anew.
inline constexpr Duration kNameHeld = 500ms * kSlowdown;
inline constexpr Duration kNameRival = 10s;
inline constexpr Duration kSweepEvery = 100ms;
inline constexpr Duration kSweepPause = 10ms;  // before a sweep that comes late
// A Ping that is not answered though other words come: the way to that worker is cut. It may have
// been cut just after a Ping, and the next one goes out with a sweep.
inline constexpr Duration kPingWithin = kSilence - kBeatEvery - kSweepEvery;
static_assert(kSilence + kSweepEvery + kSweepPause <= 1500ms * kSlowdown,
              "a worker's death is known within 1.5 s");

// One attempt.
inline constexpr Duration kGrantWithin = 500ms * kSlowdown;
// A step has to end: at least, and for workers whose speed is not known (step_patience).
inline constexpr Duration kProgressWithin = 5s * kSlowdown;
inline constexpr Duration kProgressWithinMax = 35s * kSlowdown;
inline constexpr uint64_t kStepTokens = 512;  // of the longest step that is expected
inline constexpr int kStepFactor = 8;         // over its predicted time
inline constexpr Duration kStreamingWithin = 30s * kSlowdown;  // steps over, blocks on their way
inline constexpr Duration kOwnedWithin = 5s * kSlowdown;       // PrefillDone to Owned
// Steps end, none of them for this request: so many times step_patience, and the time that prompts
// given to this worker may take (starvation_patience).
inline constexpr int kStarvedFactor = 6;
inline constexpr Duration kStarvedPromptsMax = 10min;
// ... and so much more while sequences wait there for room: this one may be among them.
inline constexpr Duration kCrowdedWithin = 240s;
inline constexpr Duration kBackoffMin = 50ms;  // after a refusal or a failure
inline constexpr Duration kBackoffMax = 1s;
inline constexpr Duration kClosingWithin = 60s;  // a cancelled attempt that never says Quiesced
inline constexpr size_t kClosingMax = 65536;

inline constexpr Duration kTellAgain = 1s;    // a Cancel that is not answered
inline constexpr size_t kTellAgainMax = 256;  // of those in one sweep
// An attempt that a worker's beats do not name: after so many it is told again, so often, then the
// attempt has failed.
inline constexpr int kBeatsMissing = 2;
inline constexpr int kRepeatsMax = 2;
inline constexpr Duration kPairBackoffMin = 1s;  // two workers that failed a hand-off
inline constexpr Duration kPairBackoffMax = 60s;
inline constexpr size_t kPairsMax = 4096;
inline constexpr Duration kDistrust = 5s;       // a worker that sent what cannot be
inline constexpr int kDeathsMax = 2;            // workers that may die of one request
inline constexpr uint32_t kProvenTokens = 2;    // more than when one died: it did not die of it
inline constexpr Duration kPoisonWindow = 30s;  // deaths that may belong together
inline constexpr Duration kBarredFor = 10min;   // a prompt that workers died of
inline constexpr size_t kBarredMax = 1024;

// Links between workers (link_rates.h). At most kPairsMax of them.
inline constexpr uint64_t kLinkRateBytes = 64u << 10;  // a hand-off of less tells no rate
inline constexpr uint32_t kLinkRateTimes = 3;          // hand-offs before a rate is believed,
inline constexpr Duration kLinkRateWire = 500ms;       // or so long on the wire
inline constexpr Duration kLinkWireMax = 10min;        // nor does one that took longer
inline constexpr Duration kLinkRateFresh = 60s;        // without a trial
inline constexpr int kLinkTrials = 100;                // part of all time to the first token
inline constexpr Duration kLinkTrialMax = 30s;         // put aside for them
inline constexpr Duration kTransferMax = 24h;          // predicted

// The log.
inline constexpr size_t kEventsPerSecond = 10;  // lines of a kind
inline constexpr size_t kEventBytesMax = 512;   // of a line

// Tokenizer.
inline constexpr uint64_t kTokenizerBytesMax = 64u << 20;
inline constexpr uint64_t kTokenizerPieceMax = 1u << 20;
inline constexpr Duration kTokenizerPieceWithin = 2s * kSlowdown;

}  // namespace headrace::coordinator
