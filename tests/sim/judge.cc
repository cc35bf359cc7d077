#include "tests/sim/judge.h"

#include <algorithm>

namespace headrace::sim {

using coordinator::Phase;
using worker::BlockState;
using worker::Stage;

// An answer may come so much after the request's deadline.
constexpr Duration kDeadlineSlack = 2s;
constexpr Duration kSweepSlack = 200ms;

void Judge::look(const std::string& process) {
  if (process == "coordinator") return look_at_logs();
  if (Slot* slot = cast_.slot(process); slot && slot->up()) look_at_worker(*slot);
}

void Judge::look_at_worker(Slot& slot) {
  const worker::Worker& w = slot.worker.node->worker();
  if (!blocks_add_up(w.blocks())) cast_.problem(slot.name + ": blocks do not add up to the total");
  if (raw(*slot.worker.id) != 0) cast_.salts[*slot.worker.id] = slot.worker.engine->salt();
  Pool& pool = pools_[slot.name];
  if (pool.process != slot.worker.process) pool = {slot.worker.process, 0};
  if (pool.steps == slot.worker.engine->steps()) return;
  pool.steps = slot.worker.engine->steps();
  look_at_step(slot);
}

// A step has begun: it may read only blocks that are verified, and they must hold the KV of just
// these tokens.
void Judge::look_at_step(const Slot& slot) {
  const worker::Worker& w = slot.worker.node->worker();
  for (const auto& [key, s] : w.held()) {
    if (!s.in_step) continue;
    for (const BlockRef& ref : s.blocks) {
      if (!w.pool().current(ref)) {
        cast_.problem(slot.name + ": a step uses a block that was freed");
        continue;
      }
      const BlockState state = w.pool().state(ref);
      if (state != BlockState::kActive && state != BlockState::kPinned)
        cast_.problem(slot.name + ": a step uses a block that is not verified");
    }
    if (!slot.worker.engine->holds(s.blocks, std::span(s.tokens).first(s.computed)))
      cast_.problem(slot.name + ": the blocks of a sequence do not hold the KV of its tokens");
  }
}

uint64_t Judge::salt_of(WorkerId worker) const {
  const auto it = cast_.salts.find(worker);
  return it == cast_.salts.end() ? 0 : it->second;
}

// Each token must be the one that the attempt's own worker chooses after those before it.
void Judge::judge_tokens(const std::string& who, Answer& answer, const std::vector<Token>& tokens,
                         const Sampling& sampling) {
  for (; answer.size < tokens.size(); ++answer.size) {
    const Token want = answer.oracle.choose(sampling, answer.size, salt_of(answer.worker));
    if (tokens[answer.size] != want)
      cast_.problem(who + ": token " + std::to_string(answer.size) +
                    " is not that of the current attempt's worker");
    answer.oracle.push(tokens[answer.size]);
  }
}

void Judge::look_at_logs() {
  for (const auto& [id, record] : cast_.coordinator->actor().requests()) {
    if (!record->tokenized) continue;
    auto it = answers_.find(id);
    if (it == answers_.end())
      it = answers_.emplace(id, Answer{SimOracle(cast_.options.engine, record->prompt)}).first;
    Answer& answer = it->second;
    if (record->log.size() > answer.size)
      judge_tokens("a request", answer, record->log.tokens(), record->sampling);
    if (!record->attempt) continue;
    answer.worker = record->attempt->decode;
    answer.attempted = true;
  }
}

// A frozen coordinator tells nobody; a freeze that begins when all should be told excuses nothing.
// Nor does one whose sweep is late, and the one after it; a timer excuses no longer than it was
// late.
Instant Judge::latest(const SimClient& client) const {
  Instant last = client.due() + kDeadlineSlack;
  for (const auto& [gone, back] : cast_.coordinator_freezes)
    if (gone <= last) last = std::max(last, back + kDeadlineSlack);
  Instant swept = client.due();
  for (const auto& [gone, back] : cast_.coordinator_freezes)
    if (gone <= swept) swept = std::max(swept, back);
  for (const auto& [due, fires] : cast_.coordinator_process->late_timers())
    if (due <= swept + coordinator::kSweepEvery + kSweepSlack) swept = std::max(swept, fires);
  return std::max(last, swept + kSweepSlack);
}

void Judge::look_at_deadlines() {
  for (size_t i = 0; i < cast_.clients.size(); ++i) {
    const SimClient& c = *cast_.clients[i];
    if (c.hesitates()) continue;  // the answer waits for the client
    if (c.begun() && !c.over() && cast_.world.now() > latest(c))
      cast_.problem("request " + std::to_string(i) + ": no answer 2 s after its deadline");
  }
}

void Judge::look_at_end() {
  for (const Slot& slot : cast_.slots) {
    if (!slot.up()) continue;
    const worker::Worker& w = slot.worker.node->worker();
    cast_.count("preempted", w.counters().preempted);
    cast_.count("failed attempts", w.counters().failed);
    const BlockCounts c = w.blocks();
    if (c.free + c.cached != c.total)
      cast_.problem(slot.name + ": " + std::to_string(c.total - c.free - c.cached) +
                    " blocks leaked");
    if (w.sequences() != 0) cast_.problem(slot.name + ": a sequence is left");
  }
  for (const SimWorker& life : cast_.lives)
    for (const std::string& v : life.engine->violations())
      cast_.problem(life.process->name() + ": " + v);
  for (size_t i = 0; i < cast_.clients.size(); ++i) judge_end(i, *cast_.clients[i]);
}

void Judge::judge_end(size_t i, const SimClient& client) {
  const std::string who = "request " + std::to_string(i);
  if (!client.trouble().empty()) cast_.problem(who + ": " + client.trouble());
  if (client.ended().size() != 1)
    return cast_.problem(who + ": " + std::to_string(client.ended().size()) + " terminal records");
  if (!client.hesitates() && client.ended_at() > latest(client))
    cast_.problem(who + ": ended more than 2 s after its deadline");
  const coordinator::Ended& ended = client.ended().front();
  Sampling sampling = client.submit().sampling;
  sampling.seed = *client.submit().seed;
  if (const auto it = answers_.find(client.submit().request); it != answers_.end())
    judge_tokens(who, it->second, client.ids(), sampling);
  else if (!client.ids().empty())
    cast_.problem(who + ": tokens from nowhere");
  if (ended.finish == Finish::kCancelled) {
    cast_.count("cancelled");
    if (!client.abandoned()) cast_.problem(who + ": cancelled, though nobody asked for it");
  } else if (ended.finish == Finish::kError) {
    cast_.count("failed");
    ++cast_.report.errors[ended.status.message];
    if (ended.status.ok() || ended.status.message.empty()) cast_.problem(who + ": no stated error");
    cast_.world.note(who + " failed: " + ended.status.message);
  } else {
    cast_.count("complete");
    cast_.count("handed over", ended.remote_prefill ? 1 : 0);
    cast_.count("prefix hits", ended.usage.cached_tokens > 0 ? 1 : 0);
    cast_.count("resumed", client.resumed());
    judge_complete(who, client, sampling);
  }
}

void Judge::judge_complete(const std::string& who, const SimClient& client,
                           const Sampling& sampling) {
  const coordinator::Ended& ended = client.ended().front();
  const uint32_t most = *client.submit().max_tokens;
  if (!cast_.options.salted) {
    Finish finish{};
    const auto want =
        sim_answer(cast_.options.engine, client.prompt(), most, sampling, {kEndToken}, &finish);
    if (client.ids() != want) cast_.problem(who + ": tokens differ from the undisturbed run");
    if (ended.finish != finish) cast_.problem(who + ": ended for another reason");
    return;
  }
  const size_t size = client.ids().size();
  const auto it = answers_.find(client.submit().request);
  if (it == answers_.end()) return;
  const Token next =
      it->second.oracle.choose(sampling, static_cast<uint32_t>(size), salt_of(it->second.worker));
  const bool full = size == most || client.prompt().size() + size == cast_.options.engine.context;
  if (ended.finish == Finish::kLength ? !full : next != kEndToken)
    cast_.problem(who + ": ended early or for another reason");
}

}  // namespace headrace::sim
