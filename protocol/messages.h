#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "protocol/generation.h"
#include "protocol/ids.h"
#include "protocol/link.h"
#include "protocol/model_card.h"
#include "protocol/result.h"
#include "protocol/time_model.h"

namespace headrace {

// Messages between the coordinator and its workers, grouped by who receives them. One-way, each may
// be late or repeated; all are idempotent by (transfer, attempt). Wire form: mesh.capnp, codec.h.

enum class Role : uint8_t { kPrefill, kDecode, kBoth };
const char* name(Role role);

// Where a decode worker wants the KV of one transfer.
struct GrantedBlocks {
  Incarnation decode;              // the granting process
  Endpoint endpoint;               // of its KV channel
  HandoffKey key;                  // admits one sender
  std::vector<BlockRef> blocks{};  // blocks[i] holds tokens [(first_block + i)*T, ... + T)
  uint32_t first_block = 0;        // the granting process has the KV of all tokens before it
  bool operator==(const GrantedBlocks&) const = default;
};

struct BlockCounts {
  uint32_t total = 0;
  uint32_t free = 0;
  uint32_t active = 0;       // read or written by the engine
  uint32_t cached = 0;       // evictable prefix blocks
  uint32_t incoming = 0;     // granted, not yet owned
  uint32_t pinned = 0;       // held for a sender
  uint32_t quarantined = 0;  // a writer may still touch them
  bool operator==(const BlockCounts&) const = default;
};

// One block of a prefix became known to a worker's cache, or was evicted from it.
struct PrefixEvent {
  enum class Kind : uint8_t {
    kAdded,
    kEvicted,
    kReset,  // forget all of this worker; what it has follows
  };
  Kind kind{};
  uint64_t hash = 0;  // prefix_hash.h
  bool operator==(const PrefixEvent&) const = default;
};

namespace to_worker {

// The answer to Register: you are `worker` in this term. Beats are due each `beat_every`.
struct Welcome {
  Term term{};
  WorkerId worker{};
  Duration beat_every{};
  CacheKey cache_key{};  // for prefix_hash: the same for all workers of this coordinator life
  bool operator==(const Welcome&) const = default;
};

// The answer to a Register that cannot be admitted (other model, other layout): the process ends.
struct Rejected {
  Status why;
  bool operator==(const Rejected&) const = default;
};

// The coordinator lives; the transfers named keep their leases. Answered by a Beat, at once.
struct Ping {
  Term term{};
  std::vector<TransferId> live;
  uint64_t prefix_seen = 0;  // events of this worker's prefix cache taken so far: send those after
  uint64_t number = 0;       // counted from 1 since Welcome; the parts of one round share it
  bool operator==(const Ping&) const = default;
};

// Asks for one piece (<= 1 MiB) of the encoded TokenizerData.
struct FetchTokenizer {
  Digest digest;
  uint64_t offset = 0;
  bool operator==(const FetchTokenizer&) const = default;
};

// To the worker that will decode. With `remote_prefill` it reserves blocks for the prompt and
// answers Grant; else it prefills by itself. A repeat gets the same answer.
struct Prepare {
  Term term{};
  Incarnation worker;  // the process meant
  RequestId request;
  TransferId transfer;
  Attempt attempt{};
  std::vector<Token> prompt;  // on a replay: the old prompt and the tokens logged since
  uint32_t generated = 0;     // how many of the last prompt tokens were generated before
  uint32_t max_tokens = 0;    // still to be generated, >= 1
  Sampling sampling;
  std::vector<Token> end_tokens;  // any of these ends the answer (it is not part of it)
  bool remote_prefill = false;
  bool kv_digest = false;   // put the digest of the sequence's KV into the last TokenRun
  Duration deadline{};      // from receipt until the request has to be over
  uint64_t cache_salt = 0;  // prefixes are shared only among equal salts
  bool operator==(const Prepare&) const = default;
};

// To the worker that will prefill: compute KV for `tokens` and push it to the grant.
struct Start {
  Term term{};
  Incarnation worker;
  RequestId request;
  TransferId transfer;
  Attempt attempt{};
  std::vector<Token> tokens;  // the first n-1 of the prompt
  GrantedBlocks grant;
  Duration deadline{};
  uint64_t cache_salt = 0;
  bool operator==(const Start&) const = default;
};

// End this attempt and free what it holds; answered by Quiesced, also when nothing is known of it.
struct Cancel {
  Term term{};
  TransferId transfer;
  Attempt attempt{};
  Status reason;
  bool operator==(const Cancel&) const = default;
};

}  // namespace to_worker

namespace to_coordinator {

struct Register {
  ModelCard card;
  Role role{};
  Incarnation incarnation;
  std::string name;    // for people: "decode-0"
  std::string device;  // "cpu avx512vnni, 2 threads"
  uint64_t pid = 0;
  Endpoint kv;       // where hand-offs are received; port 0: this worker takes none
  Endpoint metrics;  // port 0: none
  uint32_t kv_blocks = 0;
  MachineLimits limits;
  bool operator==(const Register&) const = default;
};

struct Beat {
  Incarnation incarnation;
  uint64_t steps = 0;  // engine steps so far: progress
  BlockCounts blocks;
  uint32_t running = 0;         // sequences in the batch
  uint32_t waiting = 0;         // admitted, not yet begun
  uint64_t waiting_tokens = 0;  // prompt tokens not yet computed
  uint64_t context_tokens = 0;  // of the running sequences
  std::vector<TransferId> transfers;
  Duration loop_lag{};
  Correction correction;
  bool draining = false;           // gives no new work room; ends when its last sequence has
  Saturation prefill{}, decode{};  // of the last seconds
  uint64_t prefix_from = 0;        // number of the first event, counted since Register
  std::vector<PrefixEvent> prefix_events{};
  uint64_t ping_seen = 0;  // number of the last Ping taken since Register
  bool operator==(const Beat&) const = default;
};

struct TokenizerPiece {
  Digest digest;
  uint64_t offset = 0;
  uint64_t total = 0;  // bytes of the whole
  Bytes bytes;
  bool operator==(const TokenizerPiece&) const = default;
};

struct Grant {
  TransferId transfer;
  Attempt attempt{};
  GrantedBlocks granted;
  bool operator==(const Grant&) const = default;
};

// No: to a Prepare (D) or a Start (P); nothing is held.
struct Refuse {
  TransferId transfer;
  Attempt attempt{};
  Status why;
  bool operator==(const Refuse&) const = default;
};

// From P: all n-1 tokens are computed and sent; its part is over.
struct PrefillDone {
  TransferId transfer;
  Attempt attempt{};
  Duration compute{};          // seconds in steps that carried it
  uint64_t bytes = 0;          // pushed
  uint32_t cached_tokens = 0;  // not computed: found in P's prefix cache
  bool operator==(const PrefillDone&) const = default;
};

// From D: the commit was verified, decoding begins.
struct Owned {
  TransferId transfer;
  Attempt attempt{};
  uint64_t bytes = 0;  // of KV that came
  Duration wire{};     // of that, while they did
  bool operator==(const Owned&) const = default;
};

// From either side: the attempt cannot go on; the sender has begun to free.
struct AttemptFailed {
  TransferId transfer;
  Attempt attempt{};
  Status why;
  bool operator==(const AttemptFailed&) const = default;
};

// Tokens of one request from one step; with `finish` set it is the attempt's last word.
struct TokenRun {
  TransferId transfer;
  Attempt attempt{};
  uint32_t position = 0;  // index in the generated sequence of ids[0]
  std::vector<Token> ids;
  Finish finish = Finish::kNone;
  Status status;                     // for Finish::kError
  uint32_t cached_tokens = 0;        // prompt tokens found in the prefix cache
  Digest kv{};                       // if asked for, with finish: digest of all KV of the sequence
  std::vector<Logprobs> logprobs{};  // of each id, if asked for; else empty
  bool operator==(const TokenRun&) const = default;
};

// Everything one step made, batched.
struct Tokens {
  std::vector<TokenRun> runs;
  bool operator==(const Tokens&) const = default;
};

// The attempt holds nothing here any more.
struct Quiesced {
  TransferId transfer;
  Attempt attempt{};
  uint32_t blocks_freed = 0;
  bool operator==(const Quiesced&) const = default;
};

}  // namespace to_coordinator

using ToWorker = std::variant<to_worker::Welcome, to_worker::Rejected, to_worker::Ping,
                              to_worker::FetchTokenizer, to_worker::Prepare, to_worker::Start,
                              to_worker::Cancel>;
using ToCoordinator =
    std::variant<to_coordinator::Register, to_coordinator::Beat, to_coordinator::TokenizerPiece,
                 to_coordinator::Grant, to_coordinator::Refuse, to_coordinator::PrefillDone,
                 to_coordinator::Owned, to_coordinator::AttemptFailed, to_coordinator::Tokens,
                 to_coordinator::Quiesced>;

}  // namespace headrace
