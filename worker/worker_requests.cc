#include <algorithm>
#include <string>
#include <utility>

#include "protocol/check.h"
#include "worker/worker.h"

// What the coordinator asks: Prepare, Start, Cancel, and what becomes of a grant. Every message may
// be late, repeated or of another life: answered, never asserted.

namespace headrace::worker {

using namespace to_coordinator;  // NOLINT: this actor speaks these words all the time

namespace {

Status limit_reached(uint64_t limit, const std::string& what) {
  return error(Errc::kOverloaded, std::to_string(limit) + " " + what + ", the limit");
}

// A deadline far away must not overflow the clock.
constexpr Duration kDeadlineMax = std::chrono::hours(24 * 365);

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
  Sequence s;
  s.request = m.request;
  s.transfer = m.transfer;
  s.attempt = m.attempt;
  s.prompt_tokens = static_cast<uint32_t>(m.prompt.size());
  s.generated_before = m.generated;
  s.max_tokens = std::min(m.max_tokens, engine_.card().context - s.prompt_tokens);
  s.tokens = std::move(m.prompt);
  s.sampling = m.sampling;
  s.end_tokens = std::move(m.end_tokens);
  s.kv_digest = m.kv_digest;
  s.arrived = strand_->now();
  s.deadline = s.arrived + std::min(m.deadline, kDeadlineMax);
  s.promised_tokens = promise(s);
  if (m.remote_prefill) return grant(std::move(s));
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
  Sequence s;
  s.request = m.request;
  s.transfer = m.transfer;
  s.attempt = m.attempt;
  s.prefill_only = true;
  s.prompt_tokens = static_cast<uint32_t>(m.tokens.size());
  s.tokens = std::move(m.tokens);
  s.grant = std::move(m.grant);
  s.arrived = strand_->now();
  s.deadline = s.arrived + std::min(m.deadline, kDeadlineMax);
  s.promised_tokens = promise(s);
  add(std::move(s));
  schedule();
}

void Worker::on(const to_worker::Cancel& m) {
  if (!stale(m.term)) {
    coordinator_heard_ = strand_->now();
    Sequence* s = find(m.transfer);
    if (s != nullptr && s->attempt == m.attempt) {
      const Key key = by_transfer_.at(m.transfer);
      remember(*s, AttemptFailed{m.transfer, m.attempt, m.reason});
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
  if (Status status = check_tokens(m.prompt); !status.ok()) return status;
  if (m.max_tokens == 0) return error(Errc::kInvalid, "max_tokens is 0");
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
  if (Status status = check_tokens(m.tokens); !status.ok()) return status;
  const uint32_t need = blocks_for(m.tokens.size(), engine_.card().block_tokens);
  if (m.grant.blocks.size() < need) {
    return error(Errc::kInvalid, "the grant has " + std::to_string(m.grant.blocks.size()) +
                                     " blocks, the prompt needs " + std::to_string(need));
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
Status Worker::room_for_grant(const Sequence& s) const {
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
  const uint32_t need = blocks_for(s.promised_tokens, engine_.card().block_tokens);
  if (need > free) {
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
  auto blocks =
      pool_.take(blocks_for(s.tokens.size(), engine_.card().block_tokens), BlockState::kIncoming);
  CHECK(blocks.has_value());  // room_for_grant counted them
  s.blocks = std::move(*blocks);
  s.stage = Stage::kGranted;
  s.lease = s.arrived + options_.lease;
  s.key = random_.mint<HandoffKey>();
  receiver_->expect({s.transfer, s.attempt, incarnation_, s.key, s.prompt_tokens - 1, s.blocks});
  send_grant(s);
  add(std::move(s));
}

void Worker::send_grant(const Sequence& s) {
  tell(Grant{s.transfer, s.attempt, {incarnation_, kv_endpoint(), s.key, s.blocks}});
}

// The receiver is through with a hand-off: verified, or broken.
void Worker::received(TransferId transfer, Status status) {
  const auto it = by_transfer_.find(transfer);
  if (it == by_transfer_.end()) return;
  if (!status.ok()) return fail(it->second, std::move(status));
  Sequence& s = sequences_.at(it->second);
  CHECK(s.stage == Stage::kReceiving);
  s.stage = Stage::kRunning;
  s.computed = s.prompt_tokens - 1;
  pool_.set_state(s.blocks, BlockState::kActive);
  ++counters_.owned;
  tell(Owned{s.transfer, s.attempt});
  schedule();
}

uint32_t Worker::count(Stage stage) const {
  return static_cast<uint32_t>(
      std::count_if(sequences_.begin(), sequences_.end(),
                    [&](const auto& s) { return s.second.stage == stage; }));
}

}  // namespace headrace::worker
