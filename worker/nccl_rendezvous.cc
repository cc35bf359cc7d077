#include <algorithm>
#include <utility>

#include "protocol/planted.h"
#include "worker/nccl_pairs.h"

// How the two ends of a pair come to have one communicator (nccl_notes.h).

namespace headrace::worker {

Status NcclPairs::heard(NcclLane& lane, const NcclNote& note) {
  if (lane.failed) return {};  // late
  return std::visit([&](const auto& n) { return on(lane, n); }, note);
}

Status NcclPairs::not_here() {
  return error(Errc::kInvalid, "a lane's note that does not belong here");
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Join& note) {
  if (lane.end != LaneEnd::kDecode) return not_here();
  if (lane.closed) return {};
  NcclPair* pair = current(lane.device, LaneEnd::kDecode);
  if (pair && note.epoch < pair->epoch) return {};  // overtaken: another follows, or the lane's end
  if (pair && note.epoch > pair->epoch && !planted(Mistake::kNcclJoinAny)) {
    end(*pair, error(Errc::kDisconnected, "the prefill worker has begun NCCL anew"), true);
    if (lane.failed) return {};
    pair = nullptr;
  }
  if (lane.pair && lane.pair != pair) return not_here();
  if (!pair) pair = &make(lane, note.epoch);
  if (!lane.pair) attach(lane, *pair);
  if (pair->state == State::kSeat) {
    seat();
  } else {
    greet(lane);
  }
  return {};
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Ready& note) {
  if (lane.end != LaneEnd::kPrefill) return not_here();
  NcclPair* pair = lane.pair;
  if (!pair || note.epoch != pair->epoch) return {};
  switch (pair->state) {
    case State::kReady:
      mint(*pair);
      break;
    case State::kOpening:  // the id may have gone over a channel that broke
      lane.tell(nccl_note::Id{pair->epoch, *pair->id});
      break;
    case State::kOpen:
      if (!lane.joined_open) break;  // said before the id came over another channel
      // D has ended it: it was idle there.
      end(*pair, error(Errc::kDisconnected, "the decode worker has ended NCCL"), true);
      break;
    case State::kSeat:
    case State::kMinting:
    case State::kAborting:
    case State::kLost:
      break;
  }
  return {};
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Have& note) {
  if (lane.end != LaneEnd::kPrefill) return not_here();
  const NcclPair* pair = lane.pair;
  if (!pair || note.epoch != pair->epoch) return {};
  return pair->begun() ? Status() : not_here();
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Id& note) {
  if (lane.end != LaneEnd::kDecode) return not_here();
  NcclPair* pair = lane.pair;
  if (pair && pair->epoch == note.epoch && pair->state == State::kReady) open(*pair, note.id);
  return {};
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Credit& note) {
  if (lane.end != LaneEnd::kPrefill) return not_here();
  if (note.posted < lane.peer_posted || note.posted - lane.offered > kLaneSlotsMax) {
    return error(Errc::kInvalid, "credit of " + std::to_string(note.posted) + " slots");
  }
  lane.peer_posted = note.posted;
  if (lane.pair && lane.pair->state == State::kOpen && lane.can_offer()) turn_.ready(lane);
  return {};
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Offer& note) {
  if (lane.end != LaneEnd::kDecode) return not_here();
  if (lane.closed || !lane.pair || lane.pair->epoch != note.epoch) return {};
  return turn_.offered(lane, note);
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Go& note) {
  if (lane.end != LaneEnd::kPrefill) return not_here();
  if (!lane.pair || lane.pair->epoch != note.epoch) return {};
  return turn_.go(lane, note);
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Broken& note) {
  NcclPair* pair = lane.pair;
  if (!pair || pair->epoch != note.epoch) return {};
  pair->told = true;
  end(*pair, error(Errc::kDisconnected, "the peer has given NCCL up"));
  return {};
}

Status NcclPairs::on(NcclLane& lane, const nccl_note::Bye&) {
  if (lane.end != LaneEnd::kPrefill) return not_here();
  lane.peer_posted = lane.offered;
  const bool unfinished = !lane.posted.empty() || (lane.busy && !lane.running);
  turn_.bye(lane);
  if (unfinished && !lane.closed) {
    lane.fail(error(Errc::kDisconnected, "the decode worker has closed its lane"));
    quiet(lane);
  }
  return {};
}

// Says to the peer where this lane's communicator stands.
void NcclPairs::greet(NcclLane& lane) {
  const NcclPair* pair = lane.pair;
  if (!pair || pair->state == State::kSeat) return;
  if (lane.end == LaneEnd::kPrefill) {
    lane.joined_open = pair->state == State::kOpen;
    lane.tell(nccl_note::Join{pair->epoch});
    if (pair->state == State::kReady && planted(Mistake::kNcclMintEarly)) mint(*lane.pair);
    return;
  }
  if (pair->state == State::kReady) {
    lane.tell(nccl_note::Ready{pair->epoch});
  } else {
    lane.tell(nccl_note::Have{pair->epoch});
  }
  if (lane.posted_ever > 0) lane.tell(nccl_note::Credit{lane.posted_ever});
}

void NcclPairs::mint(NcclPair& pair) {
  if (unused_ >= options_.unused_ids_max) return end(pair, health());
  pair.state = State::kMinting;
  if (!spare_.empty()) {
    const NcclId id = spare_.back();
    spare_.pop_back();
    return minted(pair, id);
  }
  if (minting_++ == 0) minting_since_ = strand_->now();
  driver_.mint([weak = std::weak_ptr(self_), comm = pair.comm](Result<NcclId> id) {
    const auto self = weak.lock();
    if (!self) return;
    NcclPairs& pairs = **self;
    --pairs.minting_;
    pairs.minting_since_ = pairs.strand_->now();
    if (id && !planted(Mistake::kNcclIdUncounted)) ++pairs.unused_;
    NcclPair* p = pairs.find(comm);
    const bool wanted = p && p->state == State::kMinting;
    if (wanted && !id) return pairs.end(*p, id.error());
    if (wanted && !p->lanes.empty()) return pairs.minted(*p, *id);
    // Nobody has heard of it: good for the next pair.
    if (id) pairs.spare_.push_back(*id);
    if (wanted) pairs.abort(*p);
  });
}

void NcclPairs::minted(NcclPair& pair, const NcclId& id) {
  pair.id = id;
  for (NcclLane* lane : pair.lanes) lane->tell(nccl_note::Id{pair.epoch, id});
  open(pair, id);
}

void NcclPairs::open(NcclPair& pair, const NcclId& id) {
  pair.state = State::kOpening;
  pair.since = strand_->now();
  const bool prefill = pair.end == LaneEnd::kPrefill;
  const CommName name{prefill ? options_.device : pair.device,
                      prefill ? pair.device : options_.device, pair.epoch};
  driver_.open(pair.comm, name, id, pair.end,
               [weak = std::weak_ptr(self_), comm = pair.comm](Status status) {
                 if (auto self = weak.lock()) (*self)->on_open(comm, std::move(status));
               });
}

void NcclPairs::on_open(CommNo comm, Status status) {
  NcclPair* pair = find(comm);
  if (!pair || pair->state != State::kOpening) return;
  if (!status.ok()) return end(*pair, status);
  if (pair->end == LaneEnd::kPrefill && unused_ > 0) --unused_;
  pair->state = State::kOpen;
  pair->since = pair->used = strand_->now();
  const std::vector<NcclLane*> lanes = pair->lanes;
  for (NcclLane* lane : lanes) {
    if (lane->end == LaneEnd::kPrefill && lane->can_offer()) turn_.ready(*lane);
  }
  turn_.wake();
}

void NcclPairs::sweep() {
  turn_.sweep();
  std::vector<CommNo> comms;
  for (const auto& [comm, pair] : pairs_) comms.push_back(comm);
  for (const CommNo comm : comms) {
    if (NcclPair* pair = find(comm)) sweep(*pair);
  }
  const Instant now = strand_->now();
  for (NcclLane* lane : lanes_) {
    if (lane->pair || lane->over() || now - lane->made < options_.ready + options_.open) continue;
    lane->fail(error(Errc::kDeadline, "the prefill worker did not say which NCCL pair it uses"));
  }
}

void NcclPairs::sweep(NcclPair& pair) {
  const Duration waited = strand_->now() - pair.since;
  switch (pair.state) {
    case State::kSeat:
      if (waited < options_.ready) return;
      return end(pair, error(Errc::kOverloaded, std::to_string(options_.pairs_max) +
                                                    " NCCL pairs are in use, the limit"));
    case State::kReady:
    case State::kMinting:
      if (waited < options_.ready) return;
      return end(pair, error(Errc::kDeadline, "the peer was not ready for NCCL in " +
                                                  std::to_string(options_.ready / 1s) + " s"));
    case State::kOpening:
      if (waited < options_.open || planted(Mistake::kNcclOpenForever)) return;
      return end(pair, error(Errc::kDeadline, "NCCL did not connect in " +
                                                  std::to_string(options_.open / 1s) + " s"));
    case State::kOpen:
      if (!pair.lanes.empty() || strand_->now() - pair.used < options_.idle) return;
      return abort(pair);
    case State::kAborting:
      if (waited >= options_.abort)
        lose(pair, "an abort took more than " + std::to_string(options_.abort / 1s) + " s");
      return;
    case State::kLost:
      return;
  }
}

}  // namespace headrace::worker
