#include "worker/nccl_turn.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "worker/nccl_pairs.h"

namespace headrace::worker {
namespace {

bool is_open(const NcclLane& lane) {
  return lane.pair && lane.pair->state == NcclPair::State::kOpen;
}

}  // namespace

NcclTurn::NcclTurn(std::shared_ptr<Strand> strand, NcclDriver& driver, uint64_t device,
                   const Waits& waits, std::function<void(CommNo, Status)> broken)
    : strand_(std::move(strand)),
      driver_(driver),
      device_(device),
      waits_(waits),
      broken_(std::move(broken)),
      self_(std::make_shared<NcclTurn*>(this)) {}

void NcclTurn::ready(NcclLane& lane) {
  if (std::find(senders_.begin(), senders_.end(), &lane) == senders_.end()) {
    senders_.push_back(&lane);
  }
  pump();
}

Status NcclTurn::offered(NcclLane& lane, nccl_note::Offer offer) {
  // The batch before it may be over there and not yet here.
  bool fits =
      !lane.offer && offer.batch == lane.batch + 1 && offer.sizes.size() <= lane.posted.size();
  for (size_t i = 0; fits && i < offer.sizes.size(); ++i) {
    fits = offer.sizes[i] <= std::min<size_t>(lane.slot_bytes, lane.posted[i].memory.size());
  }
  if (!fits) return error(Errc::kInvalid, "an offer that does not follow from what was granted");
  lane.batch = offer.batch;
  lane.offer = std::move(offer);
  offers_.push_back(&lane);
  pump();
  return {};
}

Status NcclTurn::go(NcclLane& lane, const nccl_note::Go& go) {
  if (!out_ || out_->lane != &lane || out_->running || out_->number != go.batch) {
    return error(Errc::kInvalid, "go for what was not offered");
  }
  launch(out_);
  pump();
  return {};
}

void NcclTurn::bye(NcclLane& lane) {
  if (out_ && out_->lane == &lane && !out_->running) drop(out_);
  pump();
}

bool NcclTurn::withdraw(NcclLane& lane) {
  std::erase(senders_, &lane);
  std::erase(offers_, &lane);
  const bool pending = lane.offer.has_value();
  lane.offer.reset();
  return pending || (out_ && out_->lane == &lane && !out_->running);
}

void NcclTurn::forget(NcclLane& lane) {
  withdraw(lane);
  for (Current* batch : {&out_, &in_}) {
    if (*batch && (*batch)->lane == &lane) (*batch)->lane = nullptr;
  }
}

void NcclTurn::begin_abort(CommNo comm) {
  ++aborting_;
  if (out_ && out_->comm == comm && !out_->running) drop(out_);
}

void NcclTurn::end_abort(CommNo comm) {
  --aborting_;
  for (Current* batch : {&out_, &in_}) {
    if (!*batch) continue;
    if ((*batch)->comm == comm) {
      drop(*batch);
    } else {
      (*batch)->since = strand_->now();  // what it waited behind is gone
    }
  }
  pump();
}

bool NcclTurn::moves(CommNo comm) const {
  const auto is = [comm](const Current& b) { return b && b->comm == comm && b->running; };
  return is(out_) || is(in_);
}

void NcclTurn::lose(CommNo comm, const Status& why) {
  lost_ = true;
  for (Current* batch : {&out_, &in_}) {
    if (!*batch || (*batch)->comm != comm) continue;
    if ((*batch)->lane) (*batch)->lane->lose(why);
    batch->reset();
  }
}

void NcclTurn::sweep() {
  if (aborting_ > 0) return;  // a wait of its own
  watch(out_);
  watch(in_);
}

void NcclTurn::watch(const Current& batch) {
  if (!batch) return;
  const Duration waited = strand_->now() - batch->since;
  if (batch->running && waited >= waits_.progress) {
    broken_(batch->comm, error(Errc::kDeadline, "NCCL moved nothing for " +
                                                    std::to_string(waits_.progress / 1ms) + " ms"));
  } else if (!batch->running && waited >= waits_.go) {
    broken_(batch->comm, error(Errc::kDeadline, "the decode worker did not take its turn in " +
                                                    std::to_string(waits_.go / 1ms) + " ms"));
  }
}

void NcclTurn::pump() {
  if (aborting_ > 0 || lost_) return;
  if (!out_ && (!in_ || planted(Mistake::kNcclAnyOrder))) offer_next();
  if (!in_) receive_next();
}

void NcclTurn::offer_next() {
  const auto next = std::find_if(senders_.begin(), senders_.end(), [](NcclLane* lane) {
    return lane->can_offer() && is_open(*lane);
  });
  if (next == senders_.end()) return;
  NcclLane& lane = **next;
  senders_.erase(next);
  lane.mark();
  Batch batch{&lane, lane.pair->comm, ++lane.batch, {}, {}, 0, false, strand_->now()};
  nccl_note::Offer offer{lane.pair->epoch, batch.number, {}};
  while (lane.can_offer() && batch.slots.size() < kNcclBatchMax) {
    batch.slots.push_back(lane.posted.front());
    batch.sizes.push_back(static_cast<uint32_t>(lane.posted.front().memory.size()));
    lane.posted.pop_front();
    ++lane.offered;
  }
  offer.sizes = batch.sizes;
  lane.busy = true;
  out_ = std::move(batch);
  if (lane.can_offer()) senders_.push_back(&lane);
  lane.tell(offer);
}

void NcclTurn::receive_next() {
  const bool waits = out_ && !out_->running && !planted(Mistake::kNcclAnyOrder);
  const auto next = std::find_if(offers_.begin(), offers_.end(), [&](NcclLane* lane) {
    return is_open(*lane) && (!waits || lane->device < device_);
  });
  if (next == offers_.end()) return;
  NcclLane& lane = **next;
  offers_.erase(next);
  lane.mark();
  Batch batch{&lane, lane.pair->comm, lane.offer->batch, {}, std::move(lane.offer->sizes),
              0,     false,           strand_->now()};
  lane.offer.reset();
  batch.slots.assign(lane.posted.begin(), lane.posted.begin() + long(batch.sizes.size()));
  lane.posted.erase(lane.posted.begin(), lane.posted.begin() + long(batch.sizes.size()));
  lane.busy = true;
  in_ = std::move(batch);
  launch(in_);
  lane.tell(nccl_note::Go{lane.pair->epoch, in_->number});
}

void NcclTurn::launch(Current& batch) {
  const bool out = &batch == &out_;
  batch->lane->mark();
  batch->lane->running = true;
  batch->running = true;
  batch->since = strand_->now();
  for (size_t i = 0; i < batch->slots.size(); ++i) {
    const auto memory = batch->slots[i].memory.first(batch->sizes[i]);
    auto done = [weak = std::weak_ptr(self_), out, comm = batch->comm, number = batch->number,
                 i](Status status) {
      if (auto self = weak.lock()) (*self)->on_moved(out, comm, number, i, std::move(status));
    };
    if (out) {
      driver_.send(batch->comm, memory, std::move(done));
    } else {
      driver_.receive(batch->comm, memory, std::move(done));
    }
  }
}

void NcclTurn::on_moved(bool out, CommNo comm, uint32_t number, size_t slot, Status status) {
  Current& batch = out ? out_ : in_;
  if (!batch || batch->comm != comm || batch->number != number || slot != batch->moved) return;
  if (!status.ok()) return broken_(comm, std::move(status));
  const Instant now = strand_->now();
  for (Current* b : {&out_, &in_}) {
    if (*b && (*b)->running) (*b)->since = now;  // the device moves
  }
  if (batch->lane) batch->lane->moved(batch->slots[slot], batch->sizes[slot]);
  if (++batch->moved < batch->slots.size()) return;
  drop(batch);
  pump();
}

void NcclTurn::drop(Current& batch) {
  NcclLane* lane = batch->lane;
  batch.reset();
  if (!lane) return;
  lane->let_go();
  if (!lane->over() && lane->can_offer()) {
    if (std::find(senders_.begin(), senders_.end(), lane) == senders_.end()) {
      senders_.push_back(lane);
    }
  }
  lane->pairs.quiet(*lane);
}

}  // namespace headrace::worker
