#include "tests/simt/warp.h"

#include <bit>
#include <cstdio>
#include <cstring>

#include "tests/simt/block.h"

namespace headrace::simt {
namespace {

std::string hex(uint32_t mask) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", mask);
  return text;
}

std::string text(const Meeting& meeting) {
  return std::string(meeting.name) + " (mask " + hex(meeting.mask) + ")";
}

uint32_t bit_of(const Lane& lane) { return 1u << (lane.index % kWarpLanes); }

void meet(Meeting meeting, Site at) {
  Lane& lane = *running;
  lane.ask(meeting.name, at, [&] { lane.block->warp(lane).arrive(lane, meeting); });
}

struct ShuffleOperand {
  Shuffle kind;
  uint32_t bits;
  int argument;
  uint32_t result;
};

void combine_shuffle(void* const* operands, uint32_t mask) {
  constexpr int kLanes = kWarpLanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    auto& operand = *static_cast<ShuffleOperand*>(operands[lane]);
    int from = operand.argument & (kLanes - 1);
    if (operand.kind == Shuffle::kXor) from = lane ^ operand.argument;
    if (operand.kind == Shuffle::kDown) from = lane + operand.argument;
    if (from < 0 || from >= kLanes) from = lane;
    operand.result =
        mask >> from & 1 ? static_cast<ShuffleOperand*>(operands[from])->bits : ~uint32_t{0};
  }
}

struct VoteOperand {
  bool predicate;
  uint32_t result;
};

void combine_vote(void* const* operands, uint32_t mask) {
  uint32_t votes = 0;
  for (uint32_t left = mask; left; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (static_cast<VoteOperand*>(operands[lane])->predicate) votes |= 1u << lane;
  }
  for (uint32_t left = mask; left; left &= left - 1) {
    static_cast<VoteOperand*>(operands[std::countr_zero(left)])->result = votes;
  }
}

}  // namespace

void Warp::begin(uint32_t lanes) {
  alive_ = lanes;
  open_.clear();
}

void Warp::arrive(Lane& lane, const Meeting& meeting) {
  const uint32_t bit = bit_of(lane);
  if (!(meeting.mask & bit)) {
    throw fault(lane, lane.at, text(meeting) + ": the calling lane is not in its own mask");
  }
  size_t found = open_.size();
  for (size_t i = 0; i < open_.size(); ++i) {
    const Open& open = open_[i];
    if (!(open.meeting.mask & bit)) continue;
    if (open.meeting.mask != meeting.mask || !same_text(open.meeting.name, meeting.name) ||
        !same_line(open.at, lane.at)) {
      throw fault(lane, lane.at,
                  "divergent " + text(meeting) + ": lanes " + hex(open.arrived) +
                      " wait for this lane in " + text(open.meeting) + " at " + to_string(open.at));
    }
    found = i;
  }
  if (found == open_.size()) {
    if (meeting.mask & ~alive_) {
      throw fault(lane, lane.at,
                  text(meeting) +
                      ": the mask names lanes that have returned or do not exist (alive " +
                      hex(alive_) + ")");
    }
    open_.push_back({meeting, lane.at, 0, {}});
  }
  Open& open = open_[found];
  open.arrived |= bit;
  open.operands[lane.index % kWarpLanes] = meeting.operand;
  lane.state = Lane::State::kWaiting;
  if (open.arrived != open.meeting.mask) return;
  complete(*lane.block, lane, open);
  open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(found));
}

void Warp::complete(Block& block, const Lane& lane, const Open& open) {
  if (open.meeting.combine) open.meeting.combine(open.operands, open.meeting.mask);
  met_.clear();
  const unsigned first = lane.index / kWarpLanes * kWarpLanes;
  for (uint32_t left = open.meeting.mask; left; left &= left - 1) {
    met_.push_back(&block.lane(first + static_cast<unsigned>(std::countr_zero(left))));
  }
  if (open.meeting.orders_memory) join(met_, &words_[open.meeting.mask % kWords]);
  block.wake(met_);
}

void Warp::end(const Lane& lane) {
  const uint32_t bit = bit_of(lane);
  alive_ &= ~bit;
  for (const Open& open : open_) {
    if (!(open.meeting.mask & bit)) continue;
    throw fault(
        lane, open.at,
        "returns while lanes " + hex(open.arrived) + " wait for it in this " + text(open.meeting));
  }
}

void warp_barrier(uint32_t mask, Site at) { meet({"syncwarp", mask, true, nullptr, nullptr}, at); }

uint32_t shuffle(Shuffle kind, uint32_t mask, uint32_t bits, int argument, Site at) {
  constexpr const char* kNames[] = {"shfl_xor", "shfl_down", "shfl_idx"};
  ShuffleOperand operand{kind, bits, argument, 0};
  meet({kNames[static_cast<int>(kind)], mask, false, &combine_shuffle, &operand}, at);
  return operand.result;
}

uint32_t vote(const char* name, uint32_t mask, bool predicate, Site at) {
  VoteOperand operand{predicate, 0};
  meet({name, mask, false, &combine_vote, &operand}, at);
  return operand.result;
}

}  // namespace headrace::simt
