#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/messages.h"
#include "worker/block_pool.h"
#include "worker/handoff_receiver.h"
#include "worker/handoff_sender.h"
#include "worker/penalties.h"
#include "worker/prefix_cache.h"

namespace headrace::worker {

// Where one attempt stands on this worker. Allowed ways:
//
//   decode, remote prefill:  kGranted -> kReceiving -> kRunning;  kRunning at once when the prefix
//                            cache has all but the last token
//   decode, local prefill:   kWaiting -> kRunning;  kRunning -> kWaiting when preempted
//   prefill:                 kWaiting -> kRunning -> kSending (the first two in one when all is
//   cached) from anywhere:           -> kEnding (a step in flight still uses its blocks) -> gone,
//   or -> gone
enum class Stage : uint8_t {
  kGranted,    // hits active, the other blocks incoming, leased; no sender yet
  kReceiving,  // a sender was admitted
  kWaiting,    // holds no block
  kRunning,    // takes part in steps
  kSending,    // all computed, blocks pinned until the sender is through
  kEnding,     // over; its blocks are freed when no step carries it
};

// One attempt at a request, as this worker knows it. Owned by the Worker.
struct Sequence {
  static constexpr uint32_t kAll = ~uint32_t{0};

  RequestId request;
  TransferId transfer;
  Attempt attempt{};
  Stage stage = Stage::kWaiting;
  bool prefill_only = false;  // a Start: ends when all is handed over, never samples

  std::vector<Token> tokens;      // prompt, then what was generated here
  uint32_t prompt_tokens = 0;     // as received
  uint32_t generated_before = 0;  // by earlier attempts; the last of the prompt
  uint32_t max_tokens = 0;        // to be generated here
  Sampling sampling;
  Penalties penalties;  // of tokens known so far; follows them, never rebuilt
  std::vector<Token> end_tokens;
  bool kv_digest = false;

  uint32_t computed = 0;          // tokens whose KV is in `blocks`
  uint32_t promised_tokens = 0;   // for which blocks are promised
  std::vector<BlockRef> blocks;   // in order of the sequence
  uint32_t active_blocks = kAll;  // so many of them are held as active, the others as `rest`
  Hold rest = Hold::kActive;
  uint32_t in_step = 0;  // steps that carry it: in flight, prepared

  PrefixPart prefix;           // unused without a prefix cache
  bool exchange_due = false;   // of a block for an equal one, when no step runs with it
  uint32_t cached_tokens = 0;  // of the prompt, found in the cache when it was first admitted
  bool admitted = false;       // has been, perhaps before a preemption

  Instant arrived{};
  Instant began{};  // admitted, or granted
  Instant deadline{};
  Instant lease{};                        // kGranted, kReceiving
  HandoffKey key;                         // of the grant
  GrantedBlocks grant;                    // prefill: where the KV goes
  std::unique_ptr<HandoffSender> sender;  // prefill: since it was admitted
  ReceiveTimes received{};                // decode: how its hand-off went
  bool reported = false;                  // its hand-off was
  uint32_t pushed_blocks = 0;             // index of the block to be pushed next
  double compute_seconds = 0;             // of the steps that carried it
  bool quiesce = false;                   // kEnding: say Quiesced when freed
  bool copying = false;                   // kEnding: a device still copies its blocks
  uint32_t sweeps = 0;                    // kEnding: so many since, while copying

  // Index in the generated sequence of the next token.
  uint32_t next_index() const {
    return generated_before + static_cast<uint32_t>(tokens.size()) - prompt_tokens;
  }
  uint32_t made() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
};

}  // namespace headrace::worker
