#include "tests/simt/bulk.h"

#include <algorithm>

#include "tests/simt/block.h"
#include "tests/simt/order.h"

namespace headrace::simt {

void Bulk::begin() {
  barriers_.fill({});
  held_.clear();
}

Bulk::Barrier& Bulk::find(const Lane& lane, uint64_t* bar) {
  for (Barrier& barrier : barriers_) {
    if (barrier.word == bar) return barrier;
  }
  throw fault(lane, lane.at, std::string(lane.where) + ": no mbar_init of this barrier");
}

void Bulk::init(Lane& lane, uint64_t* bar, uint32_t arrivals) {
  Barrier* free = nullptr;
  for (Barrier& barrier : barriers_) {
    if (barrier.word == bar) throw fault(lane, lane.at, "mbar_init: barrier is in use");
    if (!barrier.word && !free) free = &barrier;
  }
  if (!free) {
    throw fault(
        lane, lane.at,
        "mbar_init: more than " + std::to_string(kBarriersMax) + " barriers (kBarriersMax)");
  }
  *free = {};
  free->word = bar;
  free->arrivals = free->pending = arrivals;
  free->at = lane.at;
}

void Bulk::fence() {
  for (Barrier& barrier : barriers_) barrier.fenced = true;
}

void Bulk::invalidate(const Lane& lane, uint64_t* bar) {
  Barrier& barrier = find(lane, bar);
  if (barrier.bytes != 0 || barrier.pending != barrier.arrivals) {
    throw fault(lane, lane.at, "mbar_invalidate in the middle of a phase");
  }
  barrier.word = nullptr;
}

void Bulk::arrive(Lane& lane, uint64_t* bar, uint32_t bytes) {
  Barrier& barrier = find(lane, bar);
  release_as(lane, &barrier.words[barrier.phase & 1]);
  if (barrier.pending == 0) {
    throw fault(lane, lane.at,
                "more arrivals than the " + std::to_string(barrier.arrivals) + " of its mbar_init");
  }
  --barrier.pending;
  barrier.bytes += bytes;
  barrier.has_bytes |= bytes > 0;
  settle(*lane.block, barrier);
}

void Bulk::settle(Block& block, Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  const uint32_t parity = barrier.phase++ & 1;
  barrier.pending = barrier.arrivals;
  barrier.unseen = barrier.has_bytes;
  barrier.has_bytes = false;
  std::vector<Lane*> lanes;
  for (unsigned i = 0; i < block.size(); ++i) {
    Lane& lane = block.lane(i);
    if (lane.bar != barrier.word || lane.parity != parity) continue;
    lane.bar = nullptr;
    barrier.unseen = false;
    acquire_as(lane, &barrier.words[parity]);
    lanes.push_back(&lane);
  }
  block.wake(lanes);
}

void Bulk::wait(Lane& lane, uint64_t* bar, uint32_t parity) {
  Barrier& barrier = find(lane, bar);
  if (parity > 1) throw fault(lane, lane.at, "mbar_wait: the parity is 0 or 1");
  if ((barrier.phase & 1) != parity) {
    barrier.unseen = false;
    acquire_as(lane, &barrier.words[parity]);
    return;
  }
  lane.bar = bar;
  lane.parity = parity;
  lane.state = Lane::State::kWaiting;
}

void Bulk::done(const Lane& lane, Barrier& barrier, uint32_t bytes) {
  barrier.bytes -= bytes;
  barrier.has_bytes = true;
  settle(*lane.block, barrier);
}

void Bulk::copy(Lane& lane, const BulkCopy& copy) {
  Barrier& barrier = find(lane, copy.bar);
  if (!barrier.fenced) {
    throw fault(lane, lane.at, "bulk copy to a barrier without mbar_fence_init");
  }
  if (current_order().late_copies) {
    release_as(lane, &lane.issue_word);
    held_.push_back({copy, &lane});
    return;
  }
  release_as(lane, &barrier.words[barrier.phase & 1]);
  done(lane, barrier, copy.bytes);
}

bool Bulk::run_one(Block& block) {
  if (held_.empty()) return false;
  const Order::Threads threads = current_order().threads;
  size_t next = threads == Order::Threads::kDescending ? held_.size() - 1 : 0;
  if (threads == Order::Threads::kRandom) next = block.random()() % held_.size();
  const Held held = held_[next];
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(next));
  Barrier& barrier = find(*held.lane, held.copy.bar);
  block.become_engine(*held.lane);
  here = &held.lane->here;
  held.copy.move(held.copy.shared, held.copy.global, held.copy.bytes);
  here = nullptr;
  block.end_engine(&barrier.words[barrier.phase & 1]);
  done(*held.lane, barrier, held.copy.bytes);
  return true;
}

void Bulk::check_end(const Lane& lane) const {
  for (const Barrier& barrier : barriers_) {
    if (!barrier.word) continue;
    if (barrier.bytes != 0 || barrier.unseen) {
      throw fault(lane, barrier.at,
                  "the block ends with bulk copies to this barrier not waited for");
    }
  }
}

}  // namespace headrace::simt
