// What HandoffReceiver does where the bytes come by a lane.
#include <utility>

#include "protocol/check.h"
#include "worker/handoff_receiver.h"
#include "worker/handoff_wrong.h"

namespace headrace::worker {

// kTcp: by slices.
LaneTerms HandoffReceiver::open_lane(const ChannelPtr& channel, const handoff::Hello& hello) {
  const BlockMemory& memory = host_.memory;
  if (memory.stage == nullptr || memory.lanes == nullptr || hello.streams != 1) return {};
  const LaneTerms answer = memory.lanes->answer(hello.prefill, hello.lane);
  if (answer.kind == LaneKind::kTcp) return answer;
  const auto on_channel = [weak_self = std::weak_ptr(self_),
                           weak = std::weak_ptr(channel)](auto f) {
    const auto self = weak_self.lock();
    const auto c = weak.lock();
    if (self && c) f(c);
  };
  HandoffLane::Host host;
  host.tell = [this, on_channel](const Bytes& note) {
    on_channel([&](const ChannelPtr& c) {
      if (c->link) send(*c, handoff::LaneNote{note});
    });
  };
  host.moved = [this, on_channel](BlockStage::SlotPtr slot, size_t bytes) {
    on_channel([&](const ChannelPtr& c) { slot_moved(c, std::move(slot), bytes); });
  };
  host.failed = [this, on_channel](const Status& why) {
    on_channel([&](const ChannelPtr& c) { end(c, error(Errc::kDisconnected, why.message)); });
  };
  host.quiet = [this, on_channel] { on_channel([&](const ChannelPtr& c) { let_go(c); }); };
  channel->lane = std::make_unique<HandoffLane>(memory.lanes, LaneEnd::kDecode, hello.prefill,
                                                hello.lane, std::move(host));
  return answer;
}

void HandoffReceiver::on_note(const ChannelPtr& channel, const handoff::LaneNote& note) {
  if (!channel->lane) return end(channel, wrong("a lane's note without a lane"));
  const Status status = channel->lane->heard(note.bytes);
  if (!status.ok() && !channel->over) end(channel, wrong(status.message));
}

// A slot of ours for one of P's.
Status HandoffReceiver::on(const ChannelPtr& channel, const ReceiveGrant& grant,
                           const handoff::SlotPosted&) {
  if (!channel->lane) return wrong("a slot without a lane");
  if (channel->slots_due == kLaneSlotsMax) {
    return wrong("more than " + std::to_string(kLaneSlotsMax) + " slots at a time, the limit");
  }
  if (channel->slots_due >= blocks_of(grant) - channel->block)
    return wrong("more slots than blocks that have not come");
  if (channel->slots_due++ == 0) channel->slots_vouched = strand_->now();
  host_.memory.stage->lend(kernels::CopyWay::kIn, [strand = strand_, weak = std::weak_ptr(channel)](
                                                      const BlockStage::SlotPtr& slot) {
    const auto c = weak.lock();
    if (!c || c->over) return;
    if (c->slots_lent++ == 0) c->slots_moved = strand->now();
    c->lane->post(slot, slot->device().size());
  });
  return {};
}

void HandoffReceiver::vouch(Channel& channel, const handoff::Alive& alive) {
  if (alive.count >= channel.slots_due) channel.slots_vouched = strand_->now();
}

// Whether slots of ours wait for what P has not posted: it does not vouch for all that it has
// announced, or none has moved for as long as it waits itself, though the lane has slots of ours.
// (It may see one move before we do.)
bool HandoffReceiver::slots_late(Channel& channel) {
  if (channel.slots_due == 0) return false;
  const Instant now = strand_->now();
  const bool late = now - channel.slots_vouched >= options_.silence ||
                    (channel.slots_lent > 0 && now - channel.slots_moved >= options_.stall);
  if (late) channel.ending = LaneEnding::kStalled;
  return late;
}

// Bytes have come: whole blocks, the next of the sequence.
void HandoffReceiver::slot_moved(const ChannelPtr& channel, BlockStage::SlotPtr slot,
                                 size_t bytes) {
  if (channel->over) return;
  CHECK(channel->slots_due > 0 && channel->slots_lent > 0);
  --channel->slots_due;
  --channel->slots_lent;
  const ReceiveGrant& grant = expected_.at(channel->transfer).grant;
  const uint64_t blocks = bytes / layout_.block_bytes;
  if (blocks == 0 || bytes % layout_.block_bytes != 0 ||
      blocks > blocks_of(grant) - channel->block) {
    channel->ending = LaneEnding::kCorrupt;
    return end(channel, wrong("a slot of " + std::to_string(bytes) + " bytes"));
  }
  const Instant now = strand_->now();
  if (channel->times.bytes == 0) channel->times.first = now;
  channel->progress = channel->slots_moved = channel->slots_vouched = now;
  channel->times.bytes += bytes;
  bytes_received_ += bytes;
  const Duration wire = channel->lane->counters().on_wire;
  links_.slot(channel->peer, bytes, wire - std::exchange(channel->slots_wire, wire), now);
  channel->slot = std::move(slot);
  channel->slot_first = channel->block;
  channel->block += static_cast<uint32_t>(blocks);
  scatter(channel, grant);
}

}  // namespace headrace::worker
