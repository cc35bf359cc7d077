// What workers answer to Prepare, Start and Cancel.
#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace headrace::coordinator {
Dispatcher::Record* Dispatcher::current(WorkerId from, const TransferId& transfer,
                                        Attempt attempt) {
  auto it = attempts_.find(transfer);
  const bool known = it != attempts_.end() && it->second->attempt->attempt == attempt &&
                     (it->second->attempt->decode == from || it->second->attempt->prefill == from);
  const bool old = it != attempts_.end() && planted(Mistake::kTokensOfOldAttempt);
  if (known || old) return it->second;
  ++totals_.stale;
  return nullptr;
}

void Dispatcher::distrust(WorkerId id) {
  if (WorkerRecord* worker = registry_.find(id))
    worker->refused_until = std::max(worker->refused_until, strand_->now() + kDistrust);
}

// A grant names blocks of the granting worker, each once, none that is being filled for another
// transfer, and the KV channel with which that worker registered: a prefill worker dials no other.
Status Dispatcher::check_grant(const Record& record, const GrantedBlocks& granted) {
  const WorkerRecord& d = *registry_.find(record.attempt->decode);
  const uint64_t block_tokens = registry_.card()->block_tokens;
  const uint64_t tokens = record.attempt->prompt - 1;
  const auto bad = [&](const std::string& what) {
    return error(Errc::kInternal, title(d.id) + " granted " + what);
  };
  if (granted.decode != d.hello.incarnation) return bad("blocks of another process");
  if (granted.endpoint.port == 0 || granted.endpoint != d.hello.kv)
    return bad("a KV channel that is not its own");
  if ((granted.first_block + granted.blocks.size()) * block_tokens < tokens)
    return bad("fewer blocks than the prompt needs");
  std::unordered_set<uint32_t> seen;
  for (const BlockRef& block : granted.blocks) {
    if (raw(block.block) >= d.hello.kv_blocks) return bad("a block that it does not have");
    if (!seen.insert(raw(block.block)).second) return bad("a block twice");
    if (d.granted.contains(block_key(block))) return bad("a block of another transfer");
  }
  return {};
}

void Dispatcher::handle(WorkerId from, to_coordinator::Grant m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  AttemptRecord& attempt = *record->attempt;
  if (record->phase != Phase::kGranting || attempt.decode != from) {
    ++totals_.stale;
    // Another grant than before: that worker has forgotten the transfer and begun it anew.
    if (attempt.decode == from && attempt.prefill && m.granted.key != attempt.grant.key)
      attempt_failed(*record, {from}, error(Errc::kStale, title(from) + " lost the transfer"));
    return;
  }
  if (Status bad = check_grant(*record, m.granted); !bad.ok()) {
    distrust(from);
    return attempt_failed(*record, {from}, std::move(bad));
  }
  for (const BlockRef& block : m.granted.blocks)
    registry_.find(from)->granted.insert(block_key(block));
  attempt.grant = std::move(m.granted);
  enter(*record, Phase::kPrefilling);
  send_start(*record);
}

void Dispatcher::handle(WorkerId from, to_coordinator::Refuse m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  ++totals_.refusals;
  if (is_final(m.why.code)) {
    close_attempt(*record, m.why);
    return finish(*record, Finish::kError, std::move(m.why));
  }
  if (ran_out(*record)) return run_out(*record);
  // Stale: it registered anew, or is about to; what was asked there was asked of its old self.
  if (m.why.code != Errc::kOverloaded && m.why.code != Errc::kUnavailable &&
      m.why.code != Errc::kStale)
    return attempt_failed(*record, {from}, std::move(m.why));
  // No harm done: it goes elsewhere or waits, within what is left of its time in the queue.
  const Instant now = strand_->now();
  WorkerRecord& worker = *registry_.find(from);
  worker.refused_until = std::max(
      worker.refused_until, now + (m.why.code == Errc::kOverloaded ? kBackoffMin : kBackoffMax));
  const Instant queued = record->queued;
  close_attempt(*record, m.why);
  requeue(*record, now);
  record->queued = queued;
  place();
}

void Dispatcher::handle(WorkerId from, to_coordinator::PrefillDone m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  AttemptRecord& attempt = *record->attempt;
  const bool expected = record->phase == Phase::kPrefilling || record->phase == Phase::kDecoding;
  if (!expected || attempt.prefill != from || attempt.prefill_done) {
    ++totals_.stale;
    return;
  }
  attempt.prefill_done = true;
  if (!record->first_token)
    record->cached_tokens = m.cached_tokens;  // bounded with the first token
  prefill_over(*record);
  if (record->phase == Phase::kPrefilling) enter(*record, Phase::kPrefilling);
}

void Dispatcher::handle(WorkerId from, to_coordinator::Owned m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  // Without a grant: it found all of the prompt in its cache, and nothing has to be handed over.
  const bool expected = record->phase == Phase::kPrefilling || record->phase == Phase::kGranting;
  if (!expected || record->attempt->decode != from) {
    ++totals_.stale;
    return;
  }
  if (record->phase == Phase::kPrefilling) {
    ++totals_.remote_prefills;
    record->remote_prefill = true;
    const WorkerPair pair{*record->attempt->prefill, from};
    pairs_.worked(pair);
    links_.learn(pair, m.bytes, m.wire, strand_->now());
    forget_grant(*record);
  } else {
    record->attempt->prefill_done = true;
    prefill_over(*record);
  }
  enter(*record, Phase::kDecoding);
}

void Dispatcher::handle(WorkerId from, to_coordinator::AttemptFailed m) {
  Record* record = current(from, m.transfer, m.attempt);
  if (!record) return;
  const AttemptRecord& attempt = *record->attempt;
  const bool decoding = record->phase == Phase::kDecoding;
  if (decoding && attempt.decode != from) {
    ++totals_.stale;  // its part was over: the decode worker has verified what it got
    return;
  }
  if (ran_out(*record)) return run_out(*record);
  if (record->phase == Phase::kPrefilling && m.why.code != Errc::kUnavailable)
    pairs_.failed({*attempt.prefill, attempt.decode}, strand_->now());
  // In a hand-off the one who reports is often not the one who broke it: avoid the pair.
  const std::vector<WorkerId> culprits =
      decoding ? std::vector<WorkerId>{from} : sides(*record->attempt);
  m.why.message = title(from) + ": " + m.why.message;
  if (m.why.ok()) m.why.code = Errc::kInternal;
  attempt_failed(*record, culprits, std::move(m.why));
}

void Dispatcher::handle(WorkerId from, to_coordinator::Quiesced m) {
  auto it = closing_.find(m.transfer);
  if (it == closing_.end() || it->second.attempt != m.attempt) return;
  std::erase(it->second.open, from);
  if (it->second.open.empty()) closing_.erase(it);
}

}  // namespace headrace::coordinator
