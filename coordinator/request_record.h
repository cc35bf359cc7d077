#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coordinator/admission_queue.h"
#include "coordinator/client_port.h"
#include "coordinator/registry.h"
#include "coordinator/text_log.h"
#include "coordinator/text_model.h"
#include "coordinator/token_log.h"

namespace headrace::coordinator {

// What another worker would answer as well: no use in trying again.
constexpr bool is_final(Errc code) {
  return code == Errc::kInvalid || code == Errc::kNumeric || code == Errc::kContextExceeded ||
         code == Errc::kNotFound;
}

// Where a request stands. README.md has the table of states, deadlines and ways out.
enum class Phase : uint8_t {
  kQueued,      // waits to become tokens, for a worker with room, or out a back-off
  kGranting,    // Prepare{remote_prefill} sent, no Grant yet
  kPrefilling,  // Start sent; ends with Owned or the first token
  kDecoding,    // the decode worker has it (a local prefill included)
  kParked,      // its client is too far behind (limits.h): it holds no worker meanwhile
  kDraining,    // over: its end waits until the client took what is in the log
  kRetained,    // over, and nobody fetches it now: kept for a Resume
};

// What one worker has been told of an attempt, and whether its beats name it.
struct AttemptSide {
  int missing = 0;  // beats in a row that did not name it
  int repeats = 0;  // told again, since it was named or answered
};

// The try that is under way.
struct AttemptRecord {
  Attempt attempt{};
  TransferId transfer;
  WorkerId decode{};
  std::optional<WorkerId> prefill;
  bool prefill_done = false;
  Instant since{};           // of the phase
  Duration patience{};       // the longest starvation_patience since then
  uint32_t prompt = 0;       // tokens of the prompt it was given
  uint32_t base = 0;         // of those, how many were generated before
  bool asked_again = false;  // granting: Prepare was sent a second time
  GrantedBlocks grant;       // prefilling: what Start carries
  AttemptSide at_decode, at_prefill;
  Workload on_decode;  // what was booked on each, to be given back
  Workload on_prefill;
};

// A prompt on its way to become tokens.
struct Encoding {
  uint64_t ticket = 0;                     // of the job
  size_t bytes = 0;                        // it weighs
  std::shared_ptr<const TextModel> model;  // null: not begun
  std::shared_ptr<std::atomic<bool>> unwanted;
  Instant since{};
};

// Everything the Dispatcher knows of one request, from Submit to its end, and longer if resumable.
struct RequestRecord {
  Submit submit;                      // its prompt is moved out
  std::shared_ptr<const Prompt> raw;  // until it is tokenized
  std::vector<Token> prompt;
  std::vector<uint64_t> chain;  // briefs of its full blocks (prefix_hash.h)
  uint64_t salt = 0;
  bool tokenized = false;
  Encoding encoding;
  uint32_t max_tokens = 0;  // of the whole answer; set with the prompt
  Sampling sampling;        // with the seed that is used

  uint64_t owner = 0;  // of `client`
  Ref<ClientPort> client;
  std::optional<Instant> detached;  // since when nobody is there: `client` is empty

  Phase phase = Phase::kQueued;
  Instant admitted{};
  Instant queued{};      // since when it waits this time
  Instant not_before{};  // back-off
  std::optional<Instant> dispatched;
  std::optional<Instant> first_token;
  Instant last_token{};
  Instant touched{};    // when the client last took something
  Instant over{};       // when it ended
  size_t retained = 0;  // bytes it is counted with while it is retained

  Rank rank = Rank::kStranger;  // kKnown from its client's first sign on
  bool unheard = false;         // has tokens, of which its client took none yet; under way

  TokenLog log;
  std::optional<TextLog> text;     // with the prompt
  std::vector<Logprobs> logprobs;  // by position, if asked for

  std::optional<AttemptRecord> attempt;
  uint32_t attempts = 0;        // made so far; the fence
  int failures = 0;             // of those, how many failed in a row without a new token
  int failures_all = 0;         // and in all
  int gaps = 0;                 // in the tokens that came
  int deaths = 0;               // workers that died while they computed it, until it is proven
  uint32_t died_at = 0;         // length of the log at the first of them
  std::vector<WorkerId> avoid;  // that failed it
  uint32_t cached_tokens = 0;
  bool remote_prefill = false;
  Digest kv;  // of the attempt that ended it, if asked for

  std::optional<Ended> ended;  // the one terminal record
};

}  // namespace headrace::coordinator
