#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "coordinator/limits.h"
#include "protocol/messages.h"

namespace headrace::coordinator {

// What the Dispatcher has given to one worker and not yet seen end. Its own counters come before
// the worker's beats, which are always a little old.
struct Workload {
  uint32_t prefills = 0;        // prompts it has to compute, own or for others
  uint64_t prefill_tokens = 0;  // of those
  uint32_t decodes = 0;         // answers it makes or is about to make
  uint64_t context_tokens = 0;  // of those, as far as generated
  uint32_t blocks = 0;          // KV blocks reserved by those
  uint32_t unproven = 0;        // of those, requests that a worker may have died of
  uint32_t strangers = 0;       // of those, requests of strangers
  uint32_t in_flight() const { return prefills + decodes; }
  Workload& operator+=(const Workload& part);
  Workload& operator-=(const Workload& part);  // of what was added before
};

// One admitted worker.
struct WorkerRecord {
  WorkerId id{};
  to_coordinator::Register hello;                       // as announced
  Instant heard{};                                      // last message of any kind
  uint64_t pings = 0;                                   // sent so far
  std::deque<std::pair<uint64_t, Instant>> unanswered;  // of those; at most kUnansweredMax
  Instant progressed{};                                 // last time `beat.steps` grew
  Instant crowded{};                                    // last beat with sequences that waited
  to_coordinator::Beat beat;                            // the last one
  std::optional<Instant> rival{};  // when another process came under its name first
  uint64_t rival_pings = 0;        // sent until then
  bool stalled = false;            // work without progress: not routed to until a step ends
  bool suspect = false;            // its last beat held what cannot be: not routed to meanwhile
  Instant refused_until{};         // said "overloaded" or broke a rule: not routed to before
  Workload load;
  std::unordered_set<uint64_t> granted;  // block and generation of grants that are being filled

  bool draining() const { return beat.draining; }
  bool serves() const { return !stalled && !suspect && !beat.draining; }
};

// Who lives, and how full they are. Plain data on the Dispatcher's strand. All workers of a
// cluster have equal model cards: the first one sets the card, the last one to leave clears it.
class Registry {
 public:
  // Takes a worker in. An error is one clear line for the worker's operator: kInvalid names what
  // differs from the cluster's card or cannot be, kOverloaded the limit of workers. Names are
  // unique; a namesake is to be asked for first, it may have to give way.
  Status admit(WorkerId id, const to_coordinator::Register& hello, Instant now);
  void remove(WorkerId id);

  // Takes a beat in. Absurd numbers are clamped and make the worker a suspect until a sane beat
  // comes; an older beat than the last one only shows that the worker lives. False: not this
  // worker's process, ignored.
  bool beat(WorkerId id, const to_coordinator::Beat& beat, Instant now);

  WorkerRecord* find(WorkerId id);
  const WorkerRecord* find(WorkerId id) const;
  // The worker that registered with this incarnation, if it is here.
  WorkerRecord* find(const Incarnation& incarnation);
  // Another process than this one that bears its name.
  const WorkerRecord* namesake(const to_coordinator::Register& hello) const;

  // A Ping goes to this worker now; its number.
  uint64_t pinged(WorkerId id, Instant now);

  // Those from whom nothing was heard for longer than `limit`.
  std::vector<WorkerId> silent(Instant now, Duration limit) const;
  // Those that have left a Ping without an answer for longer than `limit`.
  std::vector<WorkerId> deaf(Instant now, Duration limit) const;

  const std::optional<ModelCard>& card() const { return card_; }
  // Workers that can make answers (role decode or both); those of them that take new ones.
  size_t decoders() const;
  size_t open_decoders() const;
  // The most KV blocks that one of those has.
  uint32_t decode_blocks_max() const;

  auto begin() { return workers_.begin(); }
  auto end() { return workers_.end(); }
  auto begin() const { return workers_.begin(); }
  auto end() const { return workers_.end(); }
  size_t size() const { return workers_.size(); }

 private:
  static constexpr size_t kUnansweredMax = 64;
  std::map<WorkerId, WorkerRecord> workers_;
  std::optional<ModelCard> card_;
};

// A block as it is granted once: its number and its generation.
inline uint64_t block_key(const BlockRef& block) {
  return uint64_t{raw(block.block)} << 32 | raw(block.generation);
}

// How long this worker may go without ending a step before it counts as stuck: several times what
// a long step is predicted to take there, within [kProgressWithin, kProgressWithinMax].
Duration step_patience(const WorkerRecord& worker);

// How long an attempt may go without a token while this worker's steps go on: kStarvedFactor times
// its step_patience, and kStepFactor times what all prompts that are booked on it are predicted to
// take.
Duration starvation_patience(const WorkerRecord& worker);

// Why a worker of `theirs` cannot join a cluster of `ours`; ok when the cards are equal.
Status compare_cards(const ModelCard& ours, const ModelCard& theirs);

}  // namespace headrace::coordinator
