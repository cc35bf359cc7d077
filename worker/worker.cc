#include "worker/worker.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"

namespace headrace::worker {

using namespace to_coordinator;  // NOLINT: this actor speaks these words all the time

Worker::Worker(std::shared_ptr<Strand> strand, Network& network, Random& random, Engine& engine,
               WorkerOptions options, std::shared_ptr<const Bytes> tokenizer)
    : strand_(std::move(strand)),
      network_(network),
      random_(random),
      engine_(engine),
      options_(std::move(options)),
      tokenizer_(std::move(tokenizer)),
      layout_(layout_digest(engine.card())),
      pool_(engine.blocks()),
      cache_(pool_, engine.card().block_tokens),
      quarantine_(pool_),
      learner_(TimeModel{options_.limits, engine.card().cost, {}}),
      meter_(TimeModel{options_.limits, engine.card().cost, {}}, options_.role),
      probes_(options_.probes ? options_.probes : std::make_shared<Probes>()) {
  if (kernels::BlockCopies* const copies = engine_.copies()) {
    stage_ = std::make_unique<BlockStage>(strand_, *copies,
                                          [this](const std::string& why) { engine_.lost(why); });
  }
  CHECK(tokenizer_ != nullptr && engine_.rows_max() > 0 && options_.token_budget > 0);
  options_.running_max = std::min(options_.running_max, engine_.rows_max());
}

Worker::~Worker() = default;

Status Worker::start(Ref<Uplink> uplink) {
  CHECK(!receiver_ && !uplink_);
  if (stage_ && options_.lanes) {
    const uint64_t slot_bytes = stage_->slot_blocks() * engine_.card().block_bytes;
    if (slot_bytes <= kLaneSlotMax) lanes_ = options_.lanes(strand_, random_, slot_bytes);
    if (lanes_) probes_->lanes();
  }
  if (options_.role != Role::kPrefill) {
    if (Status status = open_kv_channel(); !status.ok()) return status;
  }
  uplink_ = std::move(uplink);
  swept_ = strand_->now();
  sweep_due_ = swept_ + kSweepEvery;
  sweep_timer_ = strand_->after(kSweepEvery, [this] { sweep(); });
  return {};
}

Status Worker::open_kv_channel() {
  HandoffReceiver::Host host;
  host.ours = [this](BlockRef ref) {
    const bool ours = pool_.current(ref) && pool_.state(ref) == BlockState::kIncoming;
    return ours || planted(Mistake::kFreeOnCancel) || planted(Mistake::kRegrantEarly);
  };
  host.memory = block_memory();
  host.began = [this](TransferId transfer) {
    if (Sequence* s = find(transfer)) s->stage = Stage::kReceiving;
    if (planted(Mistake::kReadIncoming)) received(transfer, {});
  };
  host.ended = [this](TransferId transfer, Status status) {
    received(transfer, std::move(status));
  };
  host.times = [this](TransferId transfer, const ReceiveTimes& times) {
    if (Sequence* s = find(transfer)) s->received = times;
  };
  host.stopped = [this](TransferId transfer) { copies_over(transfer); };
  const ModelCard& card = engine_.card();
  auto receiver =
      HandoffReceiver::listen(strand_, network_, options_.kv, options_.handoff,
                              {layout_, card.block_tokens, card.block_bytes}, std::move(host));
  if (!receiver) return std::move(receiver).error();
  receiver_ = std::move(*receiver);
  return {};
}

BlockMemory Worker::block_memory() {
  return {[this](BlockId id) { return engine_.host_block(id); }, stage_.get(), lanes_};
}

// As peers reach it.
Endpoint Worker::kv_endpoint() const {
  if (!receiver_) return {};
  Endpoint at = receiver_->endpoint();
  if (options_.kv_advertise) {
    at.host = options_.kv_advertise->host;
    if (options_.kv_advertise->port != 0) at.port = options_.kv_advertise->port;
  }
  return at;
}

void Worker::on(const LinkUp& m) {
  on(LinkDown{});  // in case the end of the last one was not told
  incarnation_ = m.incarnation;
  ping_seen_ = 0;
  Register r;
  r.card = engine_.card();
  r.role = options_.role;
  r.incarnation = incarnation_;
  r.name = options_.name;
  r.device = options_.device;
  r.pid = options_.pid;
  r.kv = kv_endpoint();
  r.metrics = options_.metrics;
  r.kv_blocks = pool_.total();
  r.limits = options_.limits;
  tell(std::move(r));
}

void Worker::on(const LinkDown&) {
  term_.reset();
  std::vector<Key> keys;
  const Status gone = error(Errc::kCancelled, "the link to the coordinator was lost");
  for (auto& [key, s] : sequences_) {
    report_broken(s, gone);
    keys.push_back(key);
  }
  for (const Key key : keys) release(key, false);
  for (auto& [key, s] : sequences_) s.quiesce = false;  // those that end with the step
  finished_.clear();
  incarnation_ = {};
}

void Worker::on(const to_worker::Welcome& m) {
  if (term_ != m.term) cache_.begin(m.cache_key);  // else it was repeated
  term_ = m.term;
  beat_every_ = std::max<Duration>(m.beat_every, kSweepEvery);
  coordinator_heard_ = strand_->now();
  beat();
  schedule();
}

void Worker::on(const to_worker::Ping& m) {
  if (stale(m.term)) {
    ++counters_.stale;
    return;
  }
  const Instant now = strand_->now();
  coordinator_heard_ = now;
  cache_.seen(m.prefix_seen);
  for (const TransferId transfer : m.live) {
    if (Sequence* s = find(transfer)) s->lease = now + options_.lease;
  }
  // The parts of one round are answered once.
  if (m.number > ping_seen_) {
    ping_seen_ = m.number;
    beat();
  }
  if (!step_) schedule();  // it may have been paused
}

void Worker::on(const to_worker::FetchTokenizer& m) {
  TokenizerPiece piece;
  piece.digest = m.digest;
  piece.offset = m.offset;
  if (m.digest == engine_.card().tokenizer) {
    piece.total = tokenizer_->size();
    const uint64_t begin = std::min<uint64_t>(m.offset, piece.total);
    const uint64_t n = std::min<uint64_t>(piece.total - begin, kTokenizerPieceMax);
    const auto from = tokenizer_->begin() + static_cast<ptrdiff_t>(begin);
    piece.bytes.assign(from, from + static_cast<ptrdiff_t>(n));
  }
  tell(std::move(piece));
}

void Worker::sweep() {
  const Instant now = strand_->now();
  loop_lag_ = std::max<Duration>(now - sweep_due_, Duration{0});
  sweep_due_ = now + kSweepEvery;
  if (!planted(Mistake::kWorkerSweepsOnce))
    sweep_timer_ = strand_->after(kSweepEvery, [this] { sweep(); });
  if (lanes_) lanes_->sweep();
  if (receiver_) receiver_->sweep();
  for (auto& [key, s] : sequences_) {
    if (s.sender) s.sender->sweep();
  }
  check_deadlines(now);
  if (paused()) withdraw();
  check_copies();
  std::erase_if(finished_, [&](const auto& f) { return now - f.second.when >= kFinishedKept; });
  report_gauges(now);
  check_drain(now);  // its end may destroy us: only a beat follows
  if (registered() && now >= beat_due_) beat();
}

void Worker::check_deadlines(Instant now) {
  std::vector<std::pair<Key, Status>> over;
  std::vector<Key> ran_out;
  for (const auto& [key, s] : sequences_) {
    if (s.stage == Stage::kEnding) continue;
    const bool leased = s.stage == Stage::kGranted || s.stage == Stage::kReceiving;
    if (now >= s.deadline) {
      ran_out.push_back(key);
    } else if (leased && now >= s.lease && !planted(Mistake::kNoLease)) {
      over.emplace_back(key, error(Errc::kDeadline, "the lease of the grant ran out"));
    }
  }
  if (step_ && !step_->overdue && now - step_->since >= step_->limit) {
    step_->overdue = true;
    for (const StepPart& part : step_->parts) {
      over.emplace_back(part.key, error(Errc::kInternal, "an engine step does not end"));
    }
  }
  for (const Key key : ran_out) run_out(key);
  for (auto& [key, why] : over) fail(key, std::move(why));
}

// The client gave it no more time: it ends as if it were cancelled, and nothing has failed.
void Worker::run_out(Key key) {
  Sequence& s = sequences_.at(key);
  report_broken(s, error(Errc::kCancelled, "the request's deadline ran out"));
  AttemptFailed over{s.transfer, s.attempt,
                     error(Errc::kDeadline, "the request's deadline ran out")};
  remember(s, over);
  tell(std::move(over));
  release(key, true);
}

void Worker::beat() {
  beat_due_ = strand_->now() + beat_every_;
  tell(make_beat());
}

void Worker::tell(ToCoordinator message) {
  if (incarnation_) uplink_.tell(FromWorker{incarnation_, std::move(message)});
}

bool Worker::paused() const { return strand_->now() - coordinator_heard_ >= options_.pause_after; }

void Worker::fail(Key key, Status why) {
  const auto it = sequences_.find(key);
  if (it == sequences_.end() || it->second.stage == Stage::kEnding) return;
  ++counters_.failed;
  probes_->failed(why.code);
  Sequence& s = it->second;
  report_broken(s, why);
  AttemptFailed failed{s.transfer, s.attempt, std::move(why)};
  remember(s, failed);
  tell(std::move(failed));
  release(key, true);
}

// Ends a sequence here. Its reader and its sender stop at once, by our own doing; its blocks are
// freed now, or when the last step that touches them has ended (one that has not begun never will),
// or when the device has ended a copy of them that is under way.
void Worker::release(Key key, bool quiesce) {
  const auto it = sequences_.find(key);
  CHECK(it != sequences_.end());
  Sequence& s = it->second;
  if (s.stage != Stage::kEnding) {
    const bool reads_on =
        planted(Mistake::kRegrantEarly) || (quiesce && planted(Mistake::kFreeOnCancel));
    end_handoff(key, s, reads_on);
    s.stage = Stage::kEnding;
    s.quiesce = quiesce;
    by_transfer_.erase(s.transfer);
  }
  if (s.in_step > 0) withdraw();
  if (s.in_step > 0 || s.copying) return;
  const uint32_t freed = free_blocks(s);
  if (s.quiesce) tell(Quiesced{s.transfer, s.attempt, freed});
  sequences_.erase(it);
  schedule();
}

void Worker::end_handoff(Key key, Sequence& s, bool reads_on) {
  if (receiver_ && !reads_on) s.copying = !receiver_->forget(s.transfer);
  if (!s.sender) return;
  s.copying = !s.sender->stop([this, key] { copies_over(key); });
  if (!s.copying) s.sender.reset();
}

// No device copies blocks of this sequence any more.
void Worker::copies_over(Key key) {
  Sequence& s = sequences_.at(key);
  CHECK(s.stage == Stage::kEnding && s.copying);
  s.copying = false;
  // It is the sender who calls.
  if (s.sender) strand_->post([sender = std::move(s.sender)] {});
  release(key, s.quiesce);
}

void Worker::copies_over(TransferId transfer) {
  if (quarantine_.stopped(transfer) > 0) schedule();
  for (const auto& [key, s] : sequences_) {
    if (s.transfer == transfer && s.copying) return copies_over(key);
  }
}

// Each sweep. Who has not stopped writing by now goes on by itself: its blocks are set apart.
// Sweeps count, not time: a process that was held up has not looked meanwhile.
void Worker::check_copies() {
  std::vector<Key> over;
  for (auto& [key, s] : sequences_) {
    if (s.copying && s.rest == Hold::kIncoming && ++s.sweeps >= kStopSweeps) over.push_back(key);
  }
  for (const Key key : over) {
    quarantine(sequences_.at(key));
    copies_over(key);
  }
}

void Worker::remember(const Sequence& s, ToCoordinator last) {
  if (finished_.size() >= kFinishedMax) {
    const auto oldest = std::min_element(
        finished_.begin(), finished_.end(),
        [](const auto& a, const auto& b) { return a.second.when < b.second.when; });
    finished_.erase(oldest);
  }
  finished_.insert_or_assign(s.transfer, Finished{s.attempt, strand_->now(), std::move(last)});
}

Worker::Key Worker::add(Sequence s) {
  const Key key = next_key_++;
  by_transfer_.emplace(s.transfer, key);
  sequences_.emplace(key, std::move(s));
  return key;
}

Sequence* Worker::find(TransferId transfer) {
  const auto it = by_transfer_.find(transfer);
  return it == by_transfer_.end() ? nullptr : &sequences_.at(it->second);
}

}  // namespace headrace::worker
