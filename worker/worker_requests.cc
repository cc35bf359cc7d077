#include <algorithm>
#include <string>
#include <utility>

#include "protocol/check.h"
#include "protocol/limits.h"
#include "protocol/planted.h"
#include "worker/worker.h"

// What the coordinator asks: Prepare, Start, Cancel, and what becomes of a grant. Every message may
// be late, repeated or of another life: answered, never asserted.

namespace headrace::worker {

using namespace to_coordinator;  // NOLINT: this actor speaks these words all the time

namespace {

Status limit_reached(uint64_t limit, const std::string& what) {
  return error(Errc::kOverloaded, std::to_string(limit) + " " + what + ", the limit");
}

}  // namespace

void Worker::on(to_worker::Prepare m) {
  if (stale(m.term) || m.worker != incarnation_) {
    ++counters_.stale;
    return refuse(m.transfer, m.attempt,
                  error(Errc::kStale, "Prepare of another term or to another incarnation"));
  }
  coordinator_heard_ = strand_->now();
  if (answer_repeat(m.transfer, m.attempt)) return;
  if (Status status = check(m); !status.ok()) {
    return refuse(m.transfer, m.attempt, std::move(status));
  }
  const bool remote = m.remote_prefill;
  Sequence s = make_sequence(std::move(m));
  if (remote) return grant(std::move(s));
  add(std::move(s));
  schedule();
}

void Worker::on(to_worker::Start m) {
  if (stale(m.term) || m.worker != incarnation_) {
    ++counters_.stale;
    return refuse(m.transfer, m.attempt,
                  error(Errc::kStale, "Start of another term or to another incarnation"));
  }
  coordinator_heard_ = strand_->now();
  if (answer_repeat(m.transfer, m.attempt)) return;
  if (Status status = check(m); !status.ok()) {
    return refuse(m.transfer, m.attempt, std::move(status));
  }
  add(make_sequence(std::move(m)));
  schedule();
}

Sequence Worker::make_sequence(to_worker::Prepare m) const {
  Sequence s;
  s.request = m.request;
  s.transfer = m.transfer;
  s.attempt = m.attempt;
  s.prompt_tokens = static_cast<uint32_t>(m.prompt.size());
  s.generated_before = planted(Mistake::kIndexFromZero) ? 0 : m.generated;
  s.max_tokens = std::min(m.max_tokens, engine_.card().context - s.prompt_tokens);
  s.tokens = std::move(m.prompt);
  s.penalties = Penalties(m.sampling, s.prompt_tokens - s.generated_before);
  s.sampling = std::move(m.sampling);
  s.end_tokens = std::move(m.end_tokens);
  s.kv_digest = m.kv_digest;
  s.prefix.salt = m.cache_salt;
  s.arrived = strand_->now();
  s.deadline = s.arrived + std::min(m.deadline, limits::kDuration);
  s.promised_tokens = promise(s);
  return s;
}

Sequence Worker::make_sequence(to_worker::Start m) const {
  Sequence s;
  s.request = m.request;
  s.transfer = m.transfer;
  s.attempt = m.attempt;
  s.prefill_only = true;
  s.prompt_tokens = static_cast<uint32_t>(m.tokens.size());
  s.tokens = std::move(m.tokens);
  s.grant = std::move(m.grant);
  s.pushed_blocks = s.grant.first_block;
  s.prefix.salt = m.cache_salt;
  s.arrived = strand_->now();
  s.deadline = s.arrived + std::min(m.deadline, limits::kDuration);
  s.promised_tokens = promise(s);
  return s;
}

void Worker::on(const to_worker::Cancel& m) {
  if (!stale(m.term)) {
    coordinator_heard_ = strand_->now();
    Sequence* s = find(m.transfer);
    const bool lost = s != nullptr && s->in_step && planted(Mistake::kCancelWhileInStep);
    if (s != nullptr && s->attempt == m.attempt && !lost) {
      const Key key = by_transfer_.at(m.transfer);
      remember(*s, AttemptFailed{m.transfer, m.attempt, m.reason});
      report_broken(*s, m.reason);
      return release(key, true);
    }
    // A step in flight still uses its blocks: the answer comes with their release.
    if (ending(m.transfer)) return;
    // A Prepare that comes after its Cancel must not begin.
    if (s == nullptr && !finished_.count(m.transfer)) {
      Sequence unknown;
      unknown.transfer = m.transfer;
      unknown.attempt = m.attempt;
      const Status why = m.reason.ok() ? error(Errc::kCancelled, "cancelled") : m.reason;
      remember(unknown, Refuse{m.transfer, m.attempt, why});
    }
  } else {
    ++counters_.stale;
  }
  tell(Quiesced{m.transfer, m.attempt, 0});
}

bool Worker::ending(TransferId transfer) const {
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& s) {
    return s.second.transfer == transfer && s.second.stage == Stage::kEnding && s.second.quiesce;
  });
}

void Worker::refuse(TransferId transfer, Attempt attempt, Status why) {
  ++counters_.refused;
  probes_->refused(why.code);
  tell(Refuse{transfer, attempt, std::move(why)});
}

// A message about a transfer that is known gets the same answer again. True: it was answered.
bool Worker::answer_repeat(TransferId transfer, Attempt attempt) {
  if (const auto it = finished_.find(transfer); it != finished_.end()) {
    if (it->second.attempt == attempt) {
      tell(it->second.last);
    } else {
      ++counters_.stale;
      refuse(transfer, attempt, error(Errc::kStale, "the transfer is that of another attempt"));
    }
    return true;
  }
  const Sequence* s = find(transfer);
  if (s == nullptr) return false;
  if (s->attempt != attempt) {
    ++counters_.stale;
    refuse(transfer, attempt, error(Errc::kStale, "the transfer is that of another attempt"));
  } else if (s->stage == Stage::kGranted || s->stage == Stage::kReceiving) {
    send_grant(*s);
  }
  return true;
}

Status Worker::check_tokens(const std::vector<Token>& tokens) const {
  const ModelCard& card = engine_.card();
  if (tokens.empty()) return error(Errc::kInvalid, "the prompt is empty");
  if (tokens.size() >= card.context) {
    return error(Errc::kContextExceeded, "prompt has " + std::to_string(tokens.size()) +
                                             " tokens, the context holds " +
                                             std::to_string(card.context));
  }
  for (const Token t : tokens) {
    if (t < 0 || static_cast<uint32_t>(t) >= card.vocab) {
      return error(Errc::kInvalid, "token " + std::to_string(t) + " is outside the vocabulary of " +
                                       std::to_string(card.vocab));
    }
  }
  return {};
}

Status Worker::check(const to_worker::Prepare& m) const {
  if (options_.role == Role::kPrefill) {
    return error(Errc::kInvalid, "this worker prefills only");
  }
  if (Status status = takes_work(); !status.ok()) return status;
  if (Status status = check_tokens(m.prompt); !status.ok()) return status;
  if (m.max_tokens == 0) return error(Errc::kInvalid, "max_tokens is 0");
  const auto& bias = m.sampling.bias;
  if (std::any_of(bias.begin(), bias.end(), [&](const LogitBias& b) {
        return b.id < 0 || static_cast<uint32_t>(b.id) >= engine_.card().vocab;
      })) {
    return error(Errc::kInvalid, "a logit bias is outside the vocabulary");
  }
  if (m.generated >= m.prompt.size()) {
    return error(Errc::kInvalid, "more tokens were generated than the prompt has");
  }
  if (m.remote_prefill && m.prompt.size() == 1) {
    return error(Errc::kInvalid, "a prompt of 1 token leaves nothing to hand over");
  }
  const ModelCard& card = engine_.card();
  const uint64_t most = std::min<uint64_t>(uint64_t{m.prompt.size()} + m.max_tokens, card.context);
  if (const uint32_t need = blocks_for(most, card.block_tokens); need > pool_.total()) {
    return error(Errc::kOverloaded, "prompt and answer need " + std::to_string(need) +
                                        " KV blocks, this worker has " +
                                        std::to_string(pool_.total()));
  }
  if (count(Stage::kWaiting) >= options_.waiting_max) {
    return limit_reached(options_.waiting_max, "sequences wait");
  }
  return {};
}

Status Worker::check(const to_worker::Start& m) const {
  if (options_.role == Role::kDecode) return error(Errc::kInvalid, "this worker decodes only");
  if (Status status = takes_work(); !status.ok()) return status;
  if (Status status = check_tokens(m.tokens); !status.ok()) return status;
  const uint32_t need = blocks_for(m.tokens.size(), engine_.card().block_tokens);
  const uint64_t first = m.grant.first_block;
  if (first >= need) {
    return error(Errc::kInvalid, "the grant begins at block " + std::to_string(first) +
                                     ", the prompt has " + std::to_string(need));
  }
  if (m.grant.blocks.size() + first < need) {
    return error(Errc::kInvalid, "the grant has " + std::to_string(m.grant.blocks.size()) +
                                     " blocks, the prompt needs " + std::to_string(need - first));
  }
  if (need > pool_.total()) {
    return error(Errc::kOverloaded, "the prompt needs " + std::to_string(need) +
                                        " KV blocks, this worker has " +
                                        std::to_string(pool_.total()));
  }
  if (count(Stage::kWaiting) >= options_.waiting_max) {
    return limit_reached(options_.waiting_max, "sequences wait");
  }
  const auto sending = std::count_if(sequences_.begin(), sequences_.end(),
                                     [](const auto& s) { return s.second.prefill_only; });
  if (static_cast<uint64_t>(sending) >= options_.transfers_max) {
    return limit_reached(options_.transfers_max, "transfers are being sent");
  }
  return {};
}

// Whether a grant fits beside all that runs, was granted or waits: it overtakes nobody.
Status Worker::room_for_grant(Sequence& s) {
  const uint32_t incoming = count(Stage::kGranted) + count(Stage::kReceiving);
  if (incoming >= options_.transfers_max) {
    return limit_reached(options_.transfers_max, "transfers are being received");
  }
  if (incoming + count(Stage::kRunning) >= options_.running_max) {
    return limit_reached(options_.running_max, "sequences run");
  }
  std::vector<Key> running;
  std::vector<Key> waiting;
  const uint32_t free = room(plan_input(running, waiting));
  match_hits(s);
  const uint32_t need = to_admit(plan_sequence(s), engine_.card().block_tokens);
  if (need > free) {
    grant_short_ = true;
    return error(Errc::kOverloaded, std::to_string(need) + " KV blocks are needed, " +
                                        std::to_string(free) + " of " +
                                        std::to_string(pool_.total()) + " are to be had");
  }
  return {};
}

void Worker::grant(Sequence s) {
  if (Status status = room_for_grant(s); !status.ok()) {
    return refuse(s.transfer, s.attempt, std::move(status));
  }
  acquire_hits(s);  // before anything is taken, which may evict them
  if (s.computed + 1 == s.prompt_tokens) return own_at_once(std::move(s));
  const auto hits = static_cast<uint32_t>(s.blocks.size());
  const uint32_t all = blocks_for(s.tokens.size(), engine_.card().block_tokens);
  auto blocks = pool_.take(all - hits, Hold::kIncoming);
  CHECK(blocks.has_value());  // room_for_grant counted them
  s.blocks.insert(s.blocks.end(), blocks->begin(), blocks->end());
  s.active_blocks = hits;
  s.rest = Hold::kIncoming;
  s.stage = Stage::kGranted;
  s.lease = s.arrived + options_.lease;
  s.key = random_.mint<HandoffKey>();
  receiver_->expect(
      {s.transfer, s.attempt, incarnation_, s.key, s.prompt_tokens - 1, std::move(*blocks), hits});
  send_grant(s);
  add(std::move(s));
}

void Worker::send_grant(const Sequence& s) {
  const auto first = s.blocks.begin() + s.active_blocks;
  tell(Grant{s.transfer,
             s.attempt,
             {incarnation_, kv_endpoint(), s.key, {first, s.blocks.end()}, s.active_blocks}});
}

// All but the last token is in the prefix cache: there is nothing to hand over.
void Worker::own_at_once(Sequence s) {
  s.stage = Stage::kRunning;
  tell(Owned{s.transfer, s.attempt});
  add(std::move(s));
  schedule();
}

// The receiver is through with a hand-off: verified, or broken.
void Worker::received(TransferId transfer, Status status) {
  const auto it = by_transfer_.find(transfer);
  if (it == by_transfer_.end()) return;
  Sequence& s = sequences_.at(it->second);
  report_received(s, status);
  if (!status.ok()) return fail(it->second, std::move(status));
  CHECK(s.stage == Stage::kReceiving);
  s.stage = Stage::kRunning;
  s.computed = s.prompt_tokens - 1;
  pool_.change(std::span(s.blocks).subspan(s.active_blocks), s.rest, Hold::kActive);
  s.active_blocks = Sequence::kAll;
  leave_in_cache(s);
  ++counters_.owned;
  tell(Owned{s.transfer, s.attempt, s.received.bytes, s.received.on_wire});
  schedule();
}

Status Worker::takes_work() const {
  if (draining()) return error(Errc::kUnavailable, "this worker drains");
  return health(strand_->now());
}

uint32_t Worker::count(Stage stage) const {
  return static_cast<uint32_t>(
      std::count_if(sequences_.begin(), sequences_.end(),
                    [&](const auto& s) { return s.second.stage == stage; }));
}

}  // namespace headrace::worker
