#include "coordinator/registry.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "coordinator/utf8.h"
#include "protocol/check.h"

namespace headrace::coordinator {
namespace {

// Enough of a digest for a person to tell two apart.
std::string brief(const Digest& digest) {
  char text[9];
  std::snprintf(text, sizeof text, "%08llx", static_cast<unsigned long long>(digest.hi >> 32));
  return text;
}

std::string title(const ModelCard& card) {
  return card.name + " (digest " + brief(card.weights) + ")";
}

// A measured-over-predicted factor that the router may multiply with.
double sane(double factor) { return std::isfinite(factor) ? std::clamp(factor, 0.01, 100.0) : 1; }

bool sane(const Saturation& s) {
  return std::isfinite(s.bandwidth) && std::isfinite(s.compute) && s.bandwidth >= 0 &&
         s.compute >= 0;
}

// Numbers that no worker of so many blocks can have.
bool absurd(const to_coordinator::Beat& beat, uint32_t kv_blocks) {
  const BlockCounts& b = beat.blocks;
  const uint64_t parts =
      uint64_t{b.free} + b.active + b.cached + b.incoming + b.pinned + b.quarantined;
  return beat.running > kWorkerRunningMax || beat.waiting > kWorkerRunningMax ||
         b.total > kv_blocks || parts > kv_blocks || beat.loop_lag < Duration{0} ||
         beat.correction.overhead < Duration{0} || !std::isfinite(beat.correction.prefill) ||
         !std::isfinite(beat.correction.decode) || beat.correction.prefill < 0 ||
         beat.correction.decode < 0 || !sane(beat.prefill) || !sane(beat.decode);
}

void clamp(to_coordinator::Beat& beat, uint32_t kv_blocks) {
  beat.running = std::min(beat.running, kWorkerRunningMax);
  beat.waiting = std::min(beat.waiting, kWorkerRunningMax);
  BlockCounts& blocks = beat.blocks;
  blocks.total = std::min(blocks.total, kv_blocks);
  for (uint32_t* part : {&blocks.free, &blocks.active, &blocks.cached, &blocks.incoming,
                         &blocks.pinned, &blocks.quarantined})
    *part = std::min(*part, blocks.total);
  for (Saturation* s : {&beat.prefill, &beat.decode})
    if (!sane(*s)) *s = {};
  Correction& correction = beat.correction;
  correction.prefill = sane(correction.prefill);
  correction.decode = sane(correction.decode);
  correction.overhead = std::clamp<Duration>(correction.overhead, 0s, 10s);
}

// What people will read: short, and nothing in it that a terminal obeys.
Status check_words(const to_coordinator::Register& hello) {
  for (const std::string* text :
       {&hello.name, &hello.device, &hello.kv.host, &hello.metrics.host}) {
    if (text->size() > kWorkerTextMax)
      return error(Errc::kInvalid, "worker announces a text of " + std::to_string(text->size()) +
                                       " bytes, the limit is " + std::to_string(kWorkerTextMax));
    if (std::any_of(text->begin(), text->end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
      return error(Errc::kInvalid, "worker announces a text with control characters");
    if (first_invalid_utf8(*text) != std::string::npos)
      return error(Errc::kInvalid, "worker announces a text that is not UTF-8");
  }
  if (hello.name.empty()) return error(Errc::kInvalid, "worker announces no name");
  if (!hello.incarnation)
    return error(Errc::kInvalid, "worker announces an incarnation of zero: it names no process");
  return {};
}

// No machine of this age does more; a lie would draw all the traffic.
Status check_limits(const to_coordinator::Register& hello) {
  const auto plausible = [](double rate) { return rate >= 0 && rate <= kRateMax; };
  const MachineLimits& limits = hello.limits;
  const bool fine =
      std::all_of(limits.read.begin(), limits.read.end(),
                  [&](const ReadPoint& p) { return plausible(p.bytes_per_second); }) &&
      plausible(limits.int8_ops_per_second) && plausible(limits.f32_flops_per_second) &&
      plausible(limits.link_bytes_per_second) && plausible(limits.bf16_flops_per_second) &&
      hello.kv_blocks <= kWorkerBlocksMax;
  return fine ? Status{} : error(Errc::kInvalid, "worker announces limits that no machine has");
}

Status differs(const std::string& what, const std::string& theirs, const std::string& ours) {
  return error(Errc::kInvalid,
               "worker has " + what + " " + theirs + ", this cluster has " + what + " " + ours);
}

}  // namespace

Workload& Workload::operator+=(const Workload& part) {
  prefills += part.prefills;
  prefill_tokens += part.prefill_tokens;
  decodes += part.decodes;
  context_tokens += part.context_tokens;
  blocks += part.blocks;
  unproven += part.unproven;
  strangers += part.strangers;
  return *this;
}

Workload& Workload::operator-=(const Workload& part) {
  CHECK(prefills >= part.prefills && prefill_tokens >= part.prefill_tokens &&
        decodes >= part.decodes && context_tokens >= part.context_tokens && blocks >= part.blocks &&
        unproven >= part.unproven && strangers >= part.strangers);
  prefills -= part.prefills;
  prefill_tokens -= part.prefill_tokens;
  decodes -= part.decodes;
  context_tokens -= part.context_tokens;
  blocks -= part.blocks;
  unproven -= part.unproven;
  strangers -= part.strangers;
  return *this;
}

Status compare_cards(const ModelCard& ours, const ModelCard& theirs) {
  if (ours == theirs) return {};
  if (ours.weights != theirs.weights || ours.name != theirs.name)
    return error(Errc::kInvalid,
                 "worker serves " + title(theirs) + ", this cluster serves " + title(ours));
  if (ours.block_tokens != theirs.block_tokens)
    return differs("KV blocks of tokens:", std::to_string(theirs.block_tokens),
                   std::to_string(ours.block_tokens));
  if (ours.kv_layout != theirs.kv_layout)
    return differs("KV layout", "'" + theirs.kv_layout + "'", "'" + ours.kv_layout + "'");
  if (ours.numerics != theirs.numerics)
    return differs("arithmetic", "'" + theirs.numerics + "'", "'" + ours.numerics + "'");
  if (ours.context != theirs.context)
    return differs("a context of", std::to_string(theirs.context), std::to_string(ours.context));
  if (ours.tokenizer != theirs.tokenizer)
    return differs("tokenizer", brief(theirs.tokenizer), brief(ours.tokenizer));
  return error(Errc::kInvalid, "worker and cluster both serve " + title(ours) +
                                   " but describe its geometry differently: run equal versions");
}

Duration step_patience(const WorkerRecord& worker) {
  const ModelCard& card = worker.hello.card;
  const MachineLimits& limits = worker.hello.limits;
  const double peak = product_peak(limits, card.cost.quantized);
  // The reference device is slower than any limit of the machine says.
  if (peak <= 0 || card.numerics.rfind("reference", 0) == 0) return kProgressWithinMax;
  const TimeModel model{limits, card.cost, worker.beat.correction};
  const Duration step = std::min(predict_prefill(model, kStepTokens, 0), kProgressWithinMax);
  return std::clamp<Duration>(step * kStepFactor, kProgressWithin, kProgressWithinMax);
}

Duration starvation_patience(const WorkerRecord& worker) {
  const Duration step = step_patience(worker);
  const TimeModel model{worker.hello.limits, worker.hello.card.cost, worker.beat.correction};
  const uint64_t tokens = std::min<uint64_t>(worker.load.prefill_tokens, kWorkerTokensMax);
  // Where nothing can be predicted, each step counts as the longest one that is borne with.
  Duration prompts =
      step >= kProgressWithinMax
          ? step * static_cast<int64_t>(tokens / kStepTokens + 1)
          : std::min(predict_prefill(model, tokens, 0), kStarvedPromptsMax) * kStepFactor;
  prompts = std::clamp<Duration>(prompts, Duration{0}, kStarvedPromptsMax);
  return step * kStarvedFactor + prompts;
}

Status Registry::admit(WorkerId id, const to_coordinator::Register& hello, Instant now) {
  if (workers_.size() >= kWorkersMax)
    return error(Errc::kOverloaded,
                 "the cluster holds " + std::to_string(kWorkersMax) + " workers, its limit");
  const ModelCard& card = hello.card;
  if (card.context == 0 || card.vocab == 0 || card.block_tokens == 0 || hello.kv_blocks == 0)
    return error(Errc::kInvalid,
                 "worker announces a context, vocabulary, block size or block count of 0");
  if (Status status = check_words(hello); !status.ok()) return status;
  if (Status status = check_limits(hello); !status.ok()) return status;
  if (const WorkerRecord* other = namesake(hello))
    return error(Errc::kInvalid, "a worker of the name '" + hello.name + "' is here (process " +
                                     std::to_string(other->hello.pid) +
                                     "): names are unique, take another one");
  if (card_)
    if (Status status = compare_cards(*card_, card); !status.ok()) return status;
  card_ = card;
  WorkerRecord record;
  record.id = id;
  record.hello = hello;
  record.heard = now;
  record.progressed = now;
  workers_.insert_or_assign(id, std::move(record));
  return {};
}

void Registry::remove(WorkerId id) {
  workers_.erase(id);
  if (workers_.empty()) card_.reset();
}

bool Registry::beat(WorkerId id, const to_coordinator::Beat& beat, Instant now) {
  WorkerRecord* worker = find(id);
  if (!worker || worker->hello.incarnation != beat.incarnation) return false;
  worker->heard = now;
  std::erase_if(worker->unanswered, [&](const auto& p) { return p.first <= beat.ping_seen; });
  if (beat.steps < worker->beat.steps) return true;  // late: a newer one was here
  if (beat.steps > worker->beat.steps) {
    worker->progressed = now;
    worker->stalled = false;
  }
  if (uint64_t{beat.running} + beat.waiting == 0) worker->stalled = false;  // it got rid of it
  if (beat.waiting > 0) worker->crowded = now;
  worker->suspect = absurd(beat, worker->hello.kv_blocks);
  worker->beat = beat;
  worker->beat.prefix_events.clear();
  clamp(worker->beat, worker->hello.kv_blocks);
  return true;
}

WorkerRecord* Registry::find(WorkerId id) {
  auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

const WorkerRecord* Registry::find(WorkerId id) const {
  auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

WorkerRecord* Registry::find(const Incarnation& incarnation) {
  for (auto& [id, worker] : workers_)
    if (worker.hello.incarnation == incarnation) return &worker;
  return nullptr;
}

const WorkerRecord* Registry::namesake(const to_coordinator::Register& hello) const {
  for (const auto& [id, worker] : workers_)
    if (worker.hello.name == hello.name && worker.hello.incarnation != hello.incarnation)
      return &worker;
  return nullptr;
}

uint64_t Registry::pinged(WorkerId id, Instant now) {
  WorkerRecord& worker = *find(id);
  ++worker.pings;
  // The oldest one tells.
  if (worker.unanswered.size() < kUnansweredMax) worker.unanswered.emplace_back(worker.pings, now);
  return worker.pings;
}

std::vector<WorkerId> Registry::silent(Instant now, Duration limit) const {
  std::vector<WorkerId> out;
  for (const auto& [id, worker] : workers_)
    if (now - worker.heard > limit) out.push_back(id);
  return out;
}

std::vector<WorkerId> Registry::deaf(Instant now, Duration limit) const {
  std::vector<WorkerId> out;
  for (const auto& [id, worker] : workers_)
    if (!worker.unanswered.empty() && now - worker.unanswered.front().second > limit)
      out.push_back(id);
  return out;
}

size_t Registry::decoders() const {
  return static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), [](const auto& w) {
    return w.second.hello.role != Role::kPrefill;
  }));
}

size_t Registry::open_decoders() const {
  return static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), [](const auto& w) {
    return w.second.hello.role != Role::kPrefill && !w.second.draining();
  }));
}

uint32_t Registry::decode_blocks_max() const {
  uint32_t most = 0;
  for (const auto& [id, worker] : workers_)
    if (worker.hello.role != Role::kPrefill) most = std::max(most, worker.hello.kv_blocks);
  return most;
}

}  // namespace headrace::coordinator
