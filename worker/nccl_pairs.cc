#include "worker/nccl_pairs.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"

namespace headrace::worker {

NcclPairs::NcclPairs(std::shared_ptr<Strand> strand, NcclDriver& driver, const NcclOptions& options)
    : strand_(std::move(strand)),
      driver_(driver),
      options_(options),
      self_(std::make_shared<NcclPairs*>(this)),
      turn_(strand_, driver, options.device, {options.progress, options.go},
            [this](CommNo comm, Status why) {
              if (NcclPair* pair = find(comm)) end(*pair, why);
            }) {
  CHECK(options_.slot_bytes >= kLaneSlotMin && options_.slot_bytes <= kLaneSlotMax);
}

NcclPairs::~NcclPairs() { CHECK(lanes_.empty()); }

LaneTerms NcclPairs::offer(Incarnation peer, std::string* why) {
  const std::string no = hindrance(peer);
  if (why) *why = no;
  if (!no.empty()) return {};
  return {LaneKind::kNccl, driver_.version(), options_.slot_bytes, options_.host, options_.device};
}

LaneTerms NcclPairs::answer(Incarnation peer, const LaneTerms& offered, std::string* why) {
  std::string no = offered.kind == LaneKind::kNccl ? hindrance(peer) : "the peer offers tcp";
  if (no.empty() && offered.version != driver_.version()) {
    no = "NCCL is " + std::to_string(offered.version) + " there, and " +
         std::to_string(driver_.version()) + " here";
  }
  if (no.empty() && offered.host != options_.host && !options_.trust_links) {
    no = "the peer is on another host, and links are not declared trusted";
  }
  if (no.empty() && (offered.slot_bytes < kLaneSlotMin || offered.slot_bytes > kLaneSlotMax)) {
    no = "slots of " + std::to_string(offered.slot_bytes) + " bytes";
  }
  if (no.empty() && offered.device == options_.device) no = "the peer calls itself by our name";
  if (why) *why = no;
  if (!no.empty()) return {};
  return {LaneKind::kNccl, driver_.version(), options_.slot_bytes, options_.host, options_.device};
}

Status NcclPairs::agree(const LaneTerms& offered, const LaneTerms& answered) {
  if (answered.kind == LaneKind::kTcp) return {};
  if (offered.kind == LaneKind::kTcp) return error(Errc::kInvalid, "a lane that was not offered");
  if (answered.version != offered.version || answered.slot_bytes < kLaneSlotMin ||
      answered.slot_bytes > kLaneSlotMax || answered.device == options_.device ||
      (answered.host != options_.host && !options_.trust_links)) {
    return error(Errc::kInvalid, "a lane on other terms than were offered");
  }
  return {};
}

std::unique_ptr<PayloadLane> NcclPairs::lane(LaneEnd end, Incarnation peer, const LaneTerms& terms,
                                             PayloadLane::Host host) {
  auto lane = std::make_unique<NcclLane>(*this, end, peer, terms, std::move(host));
  lanes_.push_back(lane.get());
  if (!health_.ok()) {
    lane->fail(health_);
  } else if (end == LaneEnd::kPrefill) {
    NcclPair* pair = current(terms.device, end);
    attach(*lane, pair ? *pair : make(*lane, next_epoch_++));
    if (pair) {
      greet(*lane);
    } else {
      seat();
    }
  }
  return lane;
}

Status NcclPairs::health() const {
  if (!health_.ok()) return health_;
  if (unused_ >= options_.unused_ids_max) {
    return error(Errc::kInternal,
                 std::to_string(unused_) +
                     " NCCL ids were never used, the limit: " + "each holds a thread and a socket");
  }
  return {};
}

std::string NcclPairs::hindrance(Incarnation peer) {
  if (driver_.version() == 0) return "NCCL is not there";
  if (const Status sick = health(); !sick.ok()) return sick.message;
  if (minting_ > 0 && strand_->now() - minting_since_ >= options_.ready)
    return "NCCL makes no id: one has been under way for more than " +
           std::to_string(options_.ready / 1s) + " s";
  if (const auto it = shunned_.find(peer); it != shunned_.end()) {
    if (strand_->now() < it->second.until) return it->second.why;
    shunned_.erase(it);
  }
  uint32_t busy = 0;
  for (const auto& [comm, pair] : pairs_) {
    if (pair->peer == peer) return "";
    busy += pair->state != State::kOpen || !pair->lanes.empty();
  }
  if (busy < options_.pairs_max) return "";
  return std::to_string(busy) + " NCCL pairs are in use, the limit";
}

void NcclPairs::posted(NcclLane& lane) {
  if (lane.end == LaneEnd::kDecode) {
    if (lane.pair) lane.tell(nccl_note::Credit{lane.posted_ever});
  } else if (lane.pair && lane.pair->state == State::kOpen && lane.can_offer()) {
    turn_.ready(lane);
  }
}

void NcclPairs::close(NcclLane& lane, LaneEnding why) {
  const bool first = !std::exchange(lane.closed, true);
  if (why == LaneEnding::kCut) lane.cut = true;
  lane.posted.clear();
  const bool unknown = turn_.withdraw(lane);
  if (first && lane.end == LaneEnd::kDecode) lane.tell(nccl_note::Bye{});
  if (why == LaneEnding::kStalled) shun(lane.peer, "slots that it announced did not come");
  if (why == LaneEnding::kCorrupt) shun(lane.peer, "what came from it over NCCL was wrong");
  if (lane.pair && why == LaneEnding::kCorrupt) {
    return end(*lane.pair, error(Errc::kDisconnected, "what came over NCCL was wrong"));
  }
  if (lane.pair && why == LaneEnding::kCut && unknown) {
    return end(*lane.pair, error(Errc::kDisconnected, "the channel broke before a batch began"));
  }
  if (!lane.busy) detach(lane);
}

void NcclPairs::quiet(NcclLane& lane) {
  if (lane.over()) detach(lane);
}

void NcclPairs::forget(NcclLane& lane) {
  turn_.forget(lane);
  detach(lane);
  std::erase(lanes_, &lane);
}

NcclPair* NcclPairs::current(uint64_t device, LaneEnd end) {
  for (const auto& [comm, pair] : pairs_) {
    if (pair->device == device && pair->end == end && pair->state < State::kAborting) {
      return pair.get();
    }
  }
  return nullptr;
}

NcclPair* NcclPairs::find(CommNo comm) {
  const auto it = pairs_.find(comm);
  return it == pairs_.end() ? nullptr : it->second.get();
}

NcclPair& NcclPairs::make(NcclLane& lane, uint32_t epoch) {
  auto pair = std::make_unique<NcclPair>();
  pair->comm = CommNo{next_comm_++};
  pair->device = lane.device;
  pair->end = lane.end;
  pair->epoch = epoch;
  pair->since = pair->used = strand_->now();
  return *(pairs_[pair->comm] = std::move(pair));
}

void NcclPairs::attach(NcclLane& lane, NcclPair& pair) {
  CHECK(!lane.pair);
  lane.pair = &pair;
  pair.peer = lane.peer;
  pair.lanes.push_back(&lane);
}

void NcclPairs::detach(NcclLane& lane) {
  NcclPair* pair = std::exchange(lane.pair, nullptr);
  if (!pair) return;
  std::erase(pair->lanes, &lane);
  pair->used = strand_->now();
  // Nothing has begun, and nobody wants it any more.
  if (pair->lanes.empty() && pair->state <= State::kReady) pairs_.erase(pair->comm);
  seat();
}

void NcclPairs::seat() {
  for (;;) {
    NcclPair* waits = nullptr;
    NcclPair* idle = nullptr;
    uint32_t seated = 0;
    for (const auto& [comm, pair] : pairs_) {
      seated += pair->state != State::kSeat;
      if (pair->state == State::kSeat && !waits && !follows_one_that_ends(*pair)) {
        waits = pair.get();
      }
      if (pair->state != State::kOpen || !pair->lanes.empty()) continue;
      if (!idle || pair->used < idle->used) idle = pair.get();
    }
    if (!waits) return;
    if (seated >= options_.pairs_max) {
      if (idle) abort(*idle);
      return;
    }
    waits->state = State::kReady;
    waits->since = strand_->now();
    for (NcclLane* lane : waits->lanes) greet(*lane);
  }
}

// Ready means that nothing is left here of what it replaces.
bool NcclPairs::follows_one_that_ends(const NcclPair& pair) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& p) {
    return p.second->state == State::kAborting && p.second->device == pair.device &&
           p.second->end == pair.end;
  });
}

void NcclPairs::end(NcclPair& pair, const Status& why, bool renew) {
  if (pair.state >= State::kAborting) return;
  if (!renew) {
    ++broken_;
    shun(pair.peer, why.message);
  }
  const std::vector<NcclLane*> lanes = std::exchange(pair.lanes, {});
  for (NcclLane* lane : lanes) {
    lane->pair = nullptr;
    turn_.withdraw(*lane);
    if (renew && lane->batch == 0 && !lane->over()) continue;
    lane->tell(nccl_note::Broken{pair.epoch});
    lane->fail(why);
  }
  NcclPair* next = nullptr;
  for (NcclLane* lane : lanes) {
    if (lane->over() || pair.end == LaneEnd::kDecode) continue;  // D's wait for their next Join
    if (!next) next = &make(*lane, next_epoch_++);
    attach(*lane, *next);
  }
  abort(pair);
}

// The pair may be gone on return.
void NcclPairs::abort(NcclPair& pair) {
  const CommNo comm = pair.comm;
  const bool begun = pair.begun() && !(pair.told && planted(Mistake::kNcclOneSided));
  turn_.begin_abort(comm);
  pair.state = State::kAborting;
  pair.since = strand_->now();
  if (!begun) return on_aborted(comm);
  driver_.abort(comm, [weak = std::weak_ptr(self_), comm](const Status& status) {
    if (auto self = weak.lock()) (*self)->on_aborted(comm, status);
  });
  if (planted(Mistake::kNcclRegrantEarly)) on_aborted(comm);
}

void NcclPairs::on_aborted(CommNo comm, const Status& status) {
  NcclPair* pair = find(comm);
  if (!pair || pair->state != State::kAborting) return;  // too late, it is lost
  // Where nothing was launched there is nothing that could still write.
  if (!status.ok() && (turn_.moves(comm) || ++leaked_ > kNcclLeakedMax))
    return lose(*pair, status.message);
  pairs_.erase(comm);
  turn_.end_abort(comm);
  seat();
}

void NcclPairs::lose(NcclPair& pair, const std::string& why) {
  pair.state = State::kLost;
  if (planted(Mistake::kNcclLossIgnored)) return;
  health_ = error(Errc::kInternal, "NCCL could not be stopped, start again: " + why);
  turn_.lose(pair.comm, health_);
  std::vector<CommNo> others;
  for (const auto& [comm, other] : pairs_) others.push_back(comm);
  for (const CommNo comm : others) {
    if (NcclPair* other = find(comm)) end(*other, health_);
  }
}

void NcclPairs::shun(Incarnation peer, const std::string& why) {
  const Instant now = strand_->now();
  std::erase_if(shunned_, [&](const auto& s) { return s.second.until <= now; });
  shunned_[peer] = {now + options_.shun, "NCCL with this peer failed a moment ago: " + why};
}

}  // namespace headrace::worker
