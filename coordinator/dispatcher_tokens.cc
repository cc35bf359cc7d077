// What workers generate: the way of a token run into the log, and to the client.
#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/dispatcher.h"
#include "protocol/check.h"
#include "protocol/limits.h"
#include "protocol/planted.h"

namespace headrace::coordinator {
namespace {

bool finite(const Logprobs& one) {
  return std::isfinite(one.chosen) && one.top.size() <= limits::kLogprobs &&
         std::all_of(one.top.begin(), one.top.end(),
                     [](const TokenLogprob& t) { return std::isfinite(t.logprob); });
}

}  // namespace

void Dispatcher::handle(WorkerId from, to_coordinator::Tokens m) {
  for (to_coordinator::TokenRun& run : m.runs) take_run(from, run);
}

Status Dispatcher::check_run(const Record& record, const to_coordinator::TokenRun& run) const {
  const uint32_t vocab = registry_.card()->vocab;
  for (const Token id : run.ids)
    if (id < 0 || static_cast<uint32_t>(id) >= vocab)
      return error(Errc::kInternal, "sent token " + std::to_string(id) + " of a vocabulary of " +
                                        std::to_string(vocab));
  if (uint64_t{run.position} + run.ids.size() > record.max_tokens)
    return error(Errc::kInternal,
                 "sent more tokens than the " + std::to_string(record.max_tokens) + " it may");
  if (record.sampling.logprobs == 0) return {};
  if (run.logprobs.size() != run.ids.size() ||
      !std::all_of(run.logprobs.begin(), run.logprobs.end(), finite))
    return error(Errc::kInternal, "sent log-probabilities that do not fit its tokens");
  return {};
}

// Into the log and the text. What lies behind the token that completed a stop text is not part of
// the answer.
Status Dispatcher::append(WorkerId from, Record& record, to_coordinator::TokenRun& run) {
  if (Status bad = check_run(record, run); !bad.ok()) return bad;
  const uint32_t before = record.log.size();
  switch (record.log.append(run.position, run.ids)) {
    case TokenLog::Verdict::kAppended:
      break;
    case TokenLog::Verdict::kRepeat:
      totals_.repeats += run.ids.empty() ? 0 : 1;
      return {};
    case TokenLog::Verdict::kGap:
      ++totals_.gaps;
      return error(Errc::kStale, "left out tokens from position " + std::to_string(before));
    case TokenLog::Verdict::kConflict:
      ++totals_.conflicts;
      distrust(from);
      return error(Errc::kInternal,
                   "contradicts a token at or after position " + std::to_string(run.position));
  }
  const size_t taken = record.text->append(std::span(record.log.tokens()).subspan(before));
  record.log.truncate(before + static_cast<uint32_t>(taken));
  if (record.sampling.logprobs > 0)
    for (uint32_t at = before; at < record.log.size(); ++at)
      record.logprobs.push_back(std::move(run.logprobs[at - run.position]));
  return {};
}

void Dispatcher::take_run(WorkerId from, to_coordinator::TokenRun& run) {
  Record* record = current(from, run.transfer, run.attempt);
  if (!record) return;
  if (record->attempt->decode != from && !planted(Mistake::kTokensOfOldAttempt)) {
    ++totals_.stale;
    return;
  }
  const bool suspect = record->deaths > 0;
  const uint32_t before = record->log.size();
  if (Status bad = append(from, *record, run); !bad.ok()) {
    bad.message = title(from) + " " + bad.message;
    // A message was lost on the way, which is nobody's fault: the same worker may have it again.
    if (bad.code == Errc::kStale && ++record->gaps <= kGapsMax)
      return attempt_failed(*record, {}, std::move(bad), true);
    return attempt_failed(*record, {from}, std::move(bad));
  }
  // Tokens imply that the commit was verified, should Owned have been lost.
  const bool spoke =
      record->log.size() > before || run.finish == Finish::kStop || run.finish == Finish::kLength;
  if (spoke && (record->phase == Phase::kPrefilling || record->phase == Phase::kGranting))
    handle(from, to_coordinator::Owned{run.transfer, run.attempt});
  if (record->log.size() > before) grown(from, *record, run, before);
  if (record->text->stopped()) return finish(*record, Finish::kStop, {});
  if (run.finish != Finish::kNone) return run_finished(*record, run);
  if (behind(*record) >= behind_max(*record)) {
    close_attempt(*record, error(Errc::kCancelled, "the client is far behind"));
    record->phase = Phase::kParked;
  }
  deliver(*record);
  // Room was made, or the next suspect may come.
  if (suspect || record->phase == Phase::kParked) place();
}

// New tokens, the first of them at position `before`.
void Dispatcher::grown(WorkerId from, Record& record, const to_coordinator::TokenRun& run,
                       uint32_t before) {
  const uint32_t more = record.log.size() - before;
  const Instant now = strand_->now();
  totals_.tokens += more;
  const auto since = [&](Instant then) {
    return std::chrono::duration<double>(now - then).count();
  };
  if (!record.first_token) {
    record.first_token = now;
    record.unheard = true;
    ++unheard_;
    record.cached_tokens = std::max(record.cached_tokens, run.cached_tokens);
    record.cached_tokens =
        std::min(record.cached_tokens, static_cast<uint32_t>(record.prompt.size()) - 1);
    probes().first_token(since(record.admitted));
    probes().stage("prefill", since(*record.dispatched));
  } else {
    probes().tokens(more, since(record.last_token));
  }
  record.last_token = now;
  prefill_over(record);
  record.failures = 0;
  if (record.log.size() >= record.died_at + kProvenTokens) proven(record);
  record.attempt->since = now;
  record.attempt->patience = {};
  record.attempt->on_decode.context_tokens += more;
  registry_.find(from)->load.context_tokens += more;
}

void Dispatcher::run_finished(Record& record, const to_coordinator::TokenRun& run) {
  if (run.finish == Finish::kStop || run.finish == Finish::kLength) {
    record.kv = run.kv;
    return finish(record, run.finish, {});
  }
  Status why = run.status;
  if (why.ok()) why = error(Errc::kInternal, "ended the answer without a reason");
  why.message = title(record.attempt->decode) + ": " + why.message;
  attempt_failed(record, {record.attempt->decode}, std::move(why));
}

}  // namespace headrace::coordinator
