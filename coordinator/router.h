#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/link_rates.h"
#include "coordinator/pair_health.h"
#include "protocol/messages.h"
#include "protocol/result.h"

namespace headrace::coordinator {

// Who prefills. never: decode workers do it themselves. always: a prefill worker whenever the
// prompt has a token to hand over and one lives that has not failed this request before. auto:
// whichever is predicted sooner.
enum class PdMode : uint8_t { kAuto, kAlways, kNever };
const char* name(PdMode mode);
// "auto", "always", "never"; an error names the three.
Result<PdMode> parse_pd_mode(std::string_view text);

// One worker as the router sees it.
struct WorkerView {
  WorkerId id{};
  Role role{};
  bool receives = false;        // takes hand-offs: has a KV channel
  bool available = true;        // false: has just refused, lives nevertheless
  uint32_t in_flight = 0;       // pieces of work given to it
  uint64_t prefill_tokens = 0;  // prompt tokens that it still has to compute
  uint32_t decodes = 0;         // sequences in its batch
  uint64_t context_tokens = 0;  // of those
  uint32_t blocks_total = 0;
  uint32_t blocks_reserved = 0;
  uint64_t cached_tokens = 0;  // of this prompt, in its prefix cache: whole blocks, fewer than n
  bool busy_with_suspect = false;  // computes a request of which a worker may have died
  uint32_t strangers = 0;          // of its work, requests of strangers
  TimeModel time;
};

struct RouteRequest {
  uint64_t prompt_tokens = 0;  // n >= 1; a prefill worker would compute the first n-1
  uint32_t prompt_blocks = 0;  // KV blocks of the prompt
  uint32_t blocks = 0;         // of the prompt and the reserve for growth
  uint32_t whole_blocks = 0;   // of the prompt and the longest answer: who has fewer refuses it
  uint64_t kv_token_bytes = 0;
  PdMode mode = PdMode::kAuto;
  bool suspect = false;              // a worker died of it, perhaps: not beside another such
  bool stranger = false;             // takes part in what strangers share (limits.h)
  std::vector<WorkerId> avoid;       // failed this request before: only if there is no other
  std::vector<WorkerPair> sick;      // failed to hand over lately: only if there is no other
  const LinkRates* links = nullptr;  // none, or a pair unknown to them: as the workers announce
  Instant now{};                     // for those
};

struct Route {
  WorkerId decode{};
  std::optional<WorkerId> prefill;  // none: the decode worker prefills itself
  Duration first_token{};           // predicted, from now
  uint64_t cached_tokens = 0;       // prompt tokens expected in the cache of the one who prefills
  Duration extra{};                 // of that, as a trial (link_rates.h): another would be sooner
  // What decided: "only_choice", "prefix" (it would be another without caches), "time".
  std::string_view reason = "time";
  bool operator==(const Route&) const = default;
};

// Chooses by the predicted time to the first token: what is queued + prefill of what is not cached
// + transfer of what the decode worker lacks + the first step. A step's blocks are handed over
// while the next kStepTokens are computed. Ties go to the least work in flight, then to the lower
// id. A pair that looks slow is tried again now and then (link_rates.h). None: wait, no worker that
// may decode has room. Pure: the answer depends on the arguments alone.
std::optional<Route> route(const RouteRequest& request, std::span<const WorkerView> workers);

}  // namespace headrace::coordinator
