#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coordinator/client_port.h"
#include "coordinator/registry.h"
#include "coordinator/text_model.h"
#include "coordinator/token_log.h"

namespace headrace::coordinator {

// Where a request stands. README.md has the table of states, deadlines and ways out.
enum class Phase : uint8_t {
  kQueued,      // waits for the tokenizer, for a worker with room, or out a back-off
  kGranting,    // Prepare{remote_prefill} sent, no Grant yet
  kPrefilling,  // Start sent; ends with Owned or the first token
  kDecoding,    // the decode worker has it (a local prefill included)
  kDraining,    // over: `ended` waits until the client took what is in the log
};

// The try that is under way.
struct AttemptRecord {
  Attempt attempt{};
  TransferId transfer;
  WorkerId decode{};
  std::optional<WorkerId> prefill;
  bool prefill_done = false;
  Instant since{};      // of the phase
  uint32_t prompt = 0;  // tokens of the prompt it was given
  Workload on_decode;   // what was booked on each, to be given back
  Workload on_prefill;
};

// Everything the Dispatcher knows of one request, from Submit to Ended.
struct RequestRecord {
  Submit submit;  // its prompt is moved out once tokenized
  std::vector<Token> prompt;
  bool tokenized = false;
  uint32_t max_tokens = 0;  // of the whole answer; set with the prompt
  Sampling sampling;        // with the seed that is used

  Phase phase = Phase::kQueued;
  Instant admitted{};
  Instant queued{};      // since when it waits this time
  Instant not_before{};  // back-off
  std::optional<Instant> dispatched;
  std::optional<Instant> first_token;
  Instant touched{};  // draining: when the client last took something

  TokenLog log;
  std::unique_ptr<TextCutter> cutter;

  std::optional<AttemptRecord> attempt;
  uint32_t attempts = 0;        // made so far; the fence
  int failures = 0;             // of those, how many failed
  std::vector<WorkerId> avoid;  // that failed it
  uint32_t cached_tokens = 0;
  bool remote_prefill = false;
  Digest kv;  // of the attempt that ended it, if asked for

  std::optional<Ended> ended;
};

}  // namespace headrace::coordinator
