#include "worker/handoff_receiver.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "worker/crc32c.h"
#include "worker/handoff_wrong.h"
#include "worker/step.h"

namespace headrace::worker {
HandoffReceiver::HandoffReceiver(std::shared_ptr<Strand> strand, const HandoffOptions& options,
                                 const Layout& layout, Host host)
    : strand_(std::move(strand)),
      options_(options),
      layout_(layout),
      host_(std::move(host)),
      self_(std::make_shared<HandoffReceiver*>(this)) {}

Result<std::unique_ptr<HandoffReceiver>> HandoffReceiver::listen(std::shared_ptr<Strand> strand,
                                                                 Network& network,
                                                                 const Endpoint& at,
                                                                 const HandoffOptions& options,
                                                                 const Layout& layout, Host host) {
  std::unique_ptr<HandoffReceiver> receiver(
      new HandoffReceiver(strand, options, layout, std::move(host)));
  auto listener =
      network.listen(at, kReceiverLink, strand, [weak = std::weak_ptr(receiver->self_)](auto link) {
        if (auto self = weak.lock()) (*self)->on_accept(std::move(link));
      });
  if (!listener) return std::move(listener).error();
  receiver->listener_ = std::move(*listener);
  return receiver;
}

HandoffReceiver::~HandoffReceiver() {
  while (!channels_.empty()) let_go(channels_.back());
}

void HandoffReceiver::expect(ReceiveGrant grant) {
  CHECK(grant.first_block + grant.blocks.size() >= blocks_of(grant));
  CHECK(grant.first_block < blocks_of(grant) && !expected_.count(grant.transfer));
  const TransferId transfer = grant.transfer;
  expected_.emplace(transfer, Expected{std::move(grant), {}});
}

bool HandoffReceiver::forget(TransferId transfer) {
  const auto it = expected_.find(transfer);
  if (it != expected_.end()) {
    const std::vector<ChannelPtr> channels = std::move(it->second.channels);
    expected_.erase(it);
    for (const ChannelPtr& c : channels)
      if (c) drop(c);
  }
  return !copying_.contains(transfer);
}

void HandoffReceiver::sweep() {
  const Instant now = strand_->now();
  links_.sweep(now);
  const std::vector<ChannelPtr> channels = channels_;  // ending one changes the list
  for (const ChannelPtr& c : channels) {
    if (c->over) continue;              // it ended with another, or is kept for its lane
    if (c->wants_slot) c->heard = now;  // it is us who do not listen
    if (c->verified) c->progress = now;
    if (!c->transfer) {
      if (now - c->heard >= options_.hello) refuse(c, error(Errc::kDeadline, "no hello in time"));
    } else if (now - c->heard >= options_.silence) {
      end(c, error(Errc::kDisconnected, "the prefill worker has gone silent on the KV channel"));
    } else if (now - c->progress >= options_.progress) {
      end(c, error(Errc::kDeadline, "no KV came over the channel for " +
                                        std::to_string(options_.progress / 1s) + " s"));
    } else if (slots_late(*c)) {
      end(c, error(Errc::kDeadline, "slots that the prefill worker announced did not come"));
    } else if (now - c->spoke >= options_.alive_every) {
      send(*c, handoff::Alive{static_cast<uint32_t>(c->times.bytes >> 10)});
    }
  }
}

void HandoffReceiver::on_accept(std::unique_ptr<Link> link) {
  auto channel = std::make_shared<Channel>();
  channel->link = std::move(link);
  channel->heard = strand_->now();
  channels_.push_back(channel);
  if (channels_.size() > options_.connections_max) {
    return refuse(channel, error(Errc::kOverloaded, std::to_string(options_.connections_max) +
                                                        " KV channels are open, the limit"));
  }
  const std::weak_ptr weak_self = self_;
  const std::weak_ptr weak = channel;
  channel->link->start(
      [weak_self, weak](const Bytes& frame) {
        const auto self = weak_self.lock();
        const auto c = weak.lock();
        if (self && c) (*self)->on_frame(c, frame);
      },
      [weak_self, weak](const Status& why) {
        const auto self = weak_self.lock();
        const auto c = weak.lock();
        if (self && c) (*self)->on_closed(c, why);
      });
}

void HandoffReceiver::on_closed(const ChannelPtr& channel, const Status& why) {
  channel->ending = LaneEnding::kCut;
  if (!channel->over)
    return end(channel, error(Errc::kDisconnected, "the KV channel closed: " + why.message));
  if (channel->lane && channel->lane->end(LaneEnding::kCut)) let_go(channel);
}

void HandoffReceiver::on_frame(const ChannelPtr& channel, const Bytes& bytes) {
  if (channel->over && !channel->lane) return;
  channel->heard = strand_->now();
  if (const auto slice = std::exchange(channel->landing, std::nullopt)) {
    note_progress(*channel);
    const Status status = landed(channel, expected_.at(channel->transfer).grant, *slice);
    return status.ok() ? void() : end(channel, status);
  }
  const auto frame = decode_handoff(bytes);
  if (!frame) return end(channel, wrong(frame.error().message));
  if (const auto* note = std::get_if<handoff::LaneNote>(&*frame); note && channel->transfer)
    return on_note(channel, *note);
  if (channel->over) return;
  if (!channel->transfer) {
    if (const auto* hello = std::get_if<handoff::Hello>(&*frame)) return on_hello(channel, *hello);
    return refuse(channel, wrong("the first frame is not hello"));
  }
  const ReceiveGrant& grant = expected_.at(channel->transfer).grant;
  Status status;
  if (const auto* alive = std::get_if<handoff::Alive>(&*frame)) {
    vouch(*channel, *alive);
  } else if (channel->commit) {
    status = wrong("a frame behind the commit");
  } else if (const auto* slice = std::get_if<handoff::Slice>(&*frame)) {
    // It did not land: something is wrong with it, or with its place.
    status = check(*channel, grant, *slice, slice->bytes.size());
    if (status.ok() && channel->lane) status = wrong("a slice beside the lane");
    if (status.ok()) status = error(Errc::kStale, "the block was freed");
  } else if (const auto* posted = std::get_if<handoff::SlotPosted>(&*frame)) {
    status = on(channel, grant, *posted);
  } else if (const auto* chunk = std::get_if<handoff::ChunkEnd>(&*frame)) {
    status = on(*channel, grant, *chunk);
    if (status.ok() && channel->slot) scatter(channel, grant);
  } else if (const auto* commit = std::get_if<handoff::Commit>(&*frame)) {
    channel->commit = *commit;
    return finish(channel, grant);
  } else {
    status = wrong("a frame that does not belong here");
  }
  if (!status.ok()) end(channel, std::move(status));
}

// Once all chunks are checked.
void HandoffReceiver::finish(const ChannelPtr& channel, const ReceiveGrant& grant) {
  if (!channel->commit) return;
  if (!channel->checks.empty() && !planted(Mistake::kDecodeUnverified)) return;
  end(channel, verify(*channel, grant, *channel->commit));
}

// Before a slice is taken.
void HandoffReceiver::note_progress(Channel& channel) {
  if (channel.times.bytes == 0) channel.times.first = channel.heard;
  channel.times.on_wire += channel.heard - channel.arriving;
  channel.progress = channel.arriving = channel.heard;
}

// Whether a chunk is under way.
void HandoffReceiver::meter(Channel& channel, bool under_way) {
  if (std::exchange(channel.metered, under_way) == under_way) return;
  const Instant now = strand_->now();
  under_way ? links_.begin(channel.peer, now) : links_.end(channel.peer, now);
}

void HandoffReceiver::on_hello(const ChannelPtr& channel, const handoff::Hello& hello) {
  Status status = check_hello(hello);
  if (!status.ok()) return refuse(channel, std::move(status));
  Expected& expected = expected_.at(hello.transfer);
  const bool first = expected.channels.empty();
  expected.channels.resize(hello.streams);
  expected.channels[hello.stream] = channel;
  channel->transfer = hello.transfer;
  channel->peer = hello.prefill;
  channel->stream = hello.stream;
  channel->streams = hello.streams;
  channel->block = expected.grant.first_block + hello.stream;
  channel->chunk_first = channel->summed = channel->block;
  channel->progress = strand_->now();
  channel->link->land(kSliceHead, [this, weak = std::weak_ptr(channel)](auto head, size_t rest) {
    const auto c = weak.lock();  // we are here: the link is ours
    return c ? place(c, head, rest) : Landing{};
  });
  handoff::HelloAck ack{open_lane(channel, hello), {}};
  ack.mac = ack_mac(hello, ack, expected.grant.key);
  send(*channel, ack);
  if (first) host_.began(hello.transfer);
}

bool HandoffReceiver::arriving() const {
  return std::any_of(channels_.begin(), channels_.end(), [](const ChannelPtr& c) {
    return c->transfer && !c->over && !between_chunks(*c);
  });
}

Status HandoffReceiver::check_hello(const handoff::Hello& hello) const {
  const auto it = expected_.find(hello.transfer);
  if (it == expected_.end()) return error(Errc::kStale, "no such transfer is expected");
  const ReceiveGrant& grant = it->second.grant;
  if (!hello_mac_ok(hello, grant.key)) return wrong("hello is not signed with the transfer's key");
  if (hello.attempt != grant.attempt && !planted(Mistake::kHelloOfAnyAttempt))
    return error(Errc::kStale, "hello of another attempt");
  if (hello.decode != grant.decode && !planted(Mistake::kHelloToAnyone)) {
    return error(Errc::kStale, "hello to another incarnation of this worker");
  }
  if (hello.layout != layout_.digest) {
    return wrong("the prefill worker's model or KV layout is another");
  }
  if (hello.tokens != grant.tokens) {
    return wrong("hello announces tokens: " + versus(hello.tokens, grant.tokens));
  }
  if (hello.first != grant.first_block) {
    return wrong("hello announces the first block: " + versus(hello.first, grant.first_block));
  }
  const auto& channels = it->second.channels;
  if (!channels.empty() && channels.size() != hello.streams) {
    return wrong("hello announces streams: " + versus(hello.streams, channels.size()));
  }
  if (!channels.empty() && channels[hello.stream]) {
    return error(Errc::kStale, "this transfer has its channel already");
  }
  return {};
}

// What is wrong with a slice that comes now.
Status HandoffReceiver::check(const Channel& channel, const ReceiveGrant& grant,
                              const handoff::Slice& slice, size_t bytes) const {
  if (slice.chunk != channel.chunk) return wrong("chunk " + versus(slice.chunk, channel.chunk));
  if (channel.block >= blocks_of(grant)) return wrong("more blocks than were announced");
  if (slice.block != channel.block) return wrong("block " + versus(slice.block, channel.block));
  if (slice.offset != channel.offset) {
    return wrong("offset " + versus(slice.offset, channel.offset));
  }
  if (bytes > layout_.block_bytes - channel.offset) {
    return wrong("a slice passes the end of its block");
  }
  const BlockRef target = grant.blocks[channel.block - grant.first_block];
  if (slice.generation != target.generation) {
    return error(Errc::kStale,
                 "generation " + versus(raw(slice.generation), raw(target.generation)));
  }
  return {};
}

// Where a slice goes, if it is the one that comes next. Else its frame is reported, and ends the
// hand-off.
Landing HandoffReceiver::place(const ChannelPtr& channel, std::span<const std::byte> head,
                               size_t bytes) {
  const auto slice = decode_slice_head(head);
  if (!slice || channel->over || channel->commit || channel->lane) return {};
  const ReceiveGrant& grant = expected_.at(channel->transfer).grant;
  if (!check(*channel, grant, *slice, bytes).ok()) return {};
  const BlockRef target = grant.blocks[slice->block - grant.first_block];
  if (!host_.ours(target)) return {};
  // Not again once the slot is there for which a chunk's beginning had to wait.
  const bool waited = channel->wants_slot || channel->slot;
  if (between_chunks(*channel) && !waited) channel->arriving = strand_->now();
  meter(*channel, true);
  std::byte* const at = host_.memory.stage != nullptr
                            ? slot_memory(channel, *slice)
                            : host_.memory.host(target.block) + slice->offset;
  if (at == nullptr) return {Landing::Way::kWait};
  channel->landing = *slice;
  channel->landing->bytes = {at, bytes};
  return {Landing::Way::kAt, at};
}

// Null: no slot is there yet.
std::byte* HandoffReceiver::slot_memory(const ChannelPtr& channel, const handoff::Slice& slice) {
  if (channel->slot) {
    const size_t blocks = (slice.block - channel->slot_first) / channel->streams;
    const size_t before = blocks * layout_.block_bytes;
    return channel->slot->host().data() + before + slice.offset;
  }
  channel->wants_slot = true;
  host_.memory.stage->lend(kernels::CopyWay::kIn,
                           [this, weak_self = std::weak_ptr(self_),
                            weak = std::weak_ptr(channel)](BlockStage::SlotPtr slot) {
                             const auto self = weak_self.lock();
                             const auto c = weak.lock();
                             if (self && c && !c->over) got_slot(*c, std::move(slot));
                           });
  return nullptr;
}

void HandoffReceiver::got_slot(Channel& channel, BlockStage::SlotPtr slot) {
  channel.slot = std::move(slot);
  channel.slot_first = channel.block;
  channel.wants_slot = false;
  channel.link->resume();
}

Status HandoffReceiver::landed(const ChannelPtr& channel, const ReceiveGrant& grant,
                               const handoff::Slice& slice) {
  const size_t bytes = slice.bytes.size();
  if (!channel->slot) channel->crc = crc32c(slice.bytes, channel->crc);
  channel->offset += static_cast<uint32_t>(bytes);
  bytes_received_ += bytes;
  channel->times.bytes += bytes;
  links_.came(channel->peer, bytes, channel->heard);
  if (channel->offset < layout_.block_bytes) return {};
  channel->offset = 0;
  channel->block += channel->streams;
  if (!channel->slot) return {};
  const uint32_t held = (channel->block - channel->slot_first) / channel->streams;
  if (held == host_.memory.stage->slot_blocks()) scatter(channel, grant);
  return {};
}

// What is in the slot goes to its blocks; their sums come back.
void HandoffReceiver::scatter(const ChannelPtr& channel, const ReceiveGrant& grant) {
  const uint32_t first = channel->slot_first;
  std::vector<BlockId> blocks;
  for (uint32_t b = first; b < channel->block; b += channel->streams) {
    const BlockRef target = grant.blocks[b - grant.first_block];
    if (!host_.ours(target)) return end(channel, error(Errc::kStale, "the block was freed"));
    blocks.push_back(target.block);
  }
  const TransferId transfer = channel->transfer;
  ++copying_[transfer];
  host_.memory.stage->copy(
      std::exchange(channel->slot, nullptr), blocks, channel->lane == nullptr,
      [this, weak = std::weak_ptr(self_), channel, transfer, first](const auto& copied) {
        if (weak.lock()) scattered(channel, transfer, first, copied);
      });
}

void HandoffReceiver::scattered(const ChannelPtr& channel, TransferId transfer, uint32_t first,
                                const BlockStage::Copied& copied) {
  const auto it = copying_.find(transfer);
  if (--it->second == 0) copying_.erase(it);
  if (channel->over) {
    if (!copying_.contains(transfer) && host_.stopped) host_.stopped(transfer);
    return;
  }
  if (!copied.status.ok()) {
    return end(channel, error(Errc::kUnavailable, copied.status.message));
  }
  for (size_t i = 0; i < copied.crcs.size(); ++i)
    channel->sums.emplace(first + static_cast<uint32_t>(i) * channel->streams, copied.crcs[i]);
  if (Status status = check_sums(*channel); !status.ok()) return end(channel, std::move(status));
  finish(channel, expected_.at(transfer).grant);
}

// Of as many chunks as have all their sums.
Status HandoffReceiver::check_sums(Channel& channel) {
  while (!channel.checks.empty() && channel.sums.contains(channel.summed)) {
    Check& c = channel.checks.front();
    const auto sum = channel.sums.extract(channel.summed);
    channel.summed += channel.streams;
    c.crc = crc32c_append(c.crc, sum.mapped(), layout_.block_bytes);
    if (++c.seen < c.end.count) continue;
    const Check whole = c;
    channel.checks.pop_front();
    if (Status status = finish_chunk(channel, whole.end, whole.crc); !status.ok()) return status;
  }
  return {};
}

Status HandoffReceiver::on(Channel& channel, const ReceiveGrant& grant,
                           const handoff::ChunkEnd& end) {
  if (end.chunk != channel.chunk) return wrong("end of chunk " + versus(end.chunk, channel.chunk));
  if (channel.offset != 0) return wrong("a chunk ends inside a block");
  const uint32_t left = blocks_of(grant) - channel.chunk_first;
  // A lane's slots may come later.
  const uint32_t count = channel.lane ? std::min(end.count, left)
                                      : (channel.block - channel.chunk_first) / channel.streams;
  if (count == 0) return wrong("an empty chunk");
  if (end.first != channel.chunk_first || end.count != count) {
    return wrong("end of a chunk of " + std::to_string(end.count) + " blocks from " +
                 std::to_string(end.first) + ", expected " + std::to_string(count) + " from " +
                 std::to_string(channel.chunk_first));
  }
  channel.chunk_first += count * channel.streams;
  CHECK(channel.chunk_first - channel.streams < grant.first_block + grant.blocks.size());
  ++channel.chunk;
  meter(channel, false);
  if (host_.memory.stage == nullptr)
    return finish_chunk(channel, end, std::exchange(channel.crc, 0));
  channel.checks.push_back({end, 0, 0});
  return check_sums(channel);
}

Status HandoffReceiver::finish_chunk(Channel& channel, const handoff::ChunkEnd& end, uint32_t crc) {
  if (planted(Mistake::kCrcBelieved)) crc = end.crc;
  if (end.crc != crc) {
    channel.ending = LaneEnding::kCorrupt;
    return wrong("CRC of chunk " + std::to_string(end.chunk) + " is wrong");
  }
  channel.digest.add(end.chunk, crc);
  return {};
}

Status HandoffReceiver::verify(const Channel& channel, const ReceiveGrant& grant,
                               const handoff::Commit& commit) const {
  if (planted(Mistake::kDecodeUnverified)) return {};
  if (channel.offset != 0 || channel.block != channel.chunk_first) {
    return wrong("commit inside a chunk");
  }
  if (commit.chunks != channel.chunk) {
    return wrong("commit of chunks: " + versus(commit.chunks, channel.chunk));
  }
  if (commit.tokens != grant.tokens) {
    return wrong("commit of tokens: " + versus(commit.tokens, grant.tokens));
  }
  if (channel.block < blocks_of(grant)) {
    return wrong("commit of blocks: " + versus(channel.block, blocks_of(grant)));
  }
  if (commit.digest != channel.digest.value()) return wrong("digest of the hand-off is wrong");
  return {};
}

uint32_t HandoffReceiver::blocks_of(const ReceiveGrant& grant) const {
  return blocks_for(grant.tokens, layout_.block_tokens);
}

void HandoffReceiver::refuse(const ChannelPtr& channel, Status why) {
  ++refused_;
  send(*channel, handoff::Verdict{std::move(why)});
  drop(channel);
}

void HandoffReceiver::end(const ChannelPtr& channel, Status status) {
  if (channel->over) return;
  if (!channel->transfer) {
    ++refused_;
    return drop(channel);
  }
  channel->verified = status.ok();
  const auto& all = expected_.at(channel->transfer).channels;
  const bool over =
      std::all_of(all.begin(), all.end(), [](const ChannelPtr& c) { return c && c->verified; });
  if (over || !status.ok()) conclude(channel->transfer, std::move(status));
}

// A hand-off, with all its streams.
void HandoffReceiver::conclude(TransferId transfer, Status status) {
  const auto channels = std::move(expected_.at(transfer).channels);
  expected_.erase(transfer);
  ReceiveTimes times;
  for (const ChannelPtr& c : channels) {
    if (!c) continue;
    if (c->times.bytes > 0)
      times.first = times.bytes == 0 ? c->times.first : std::min(times.first, c->times.first);
    times.bytes += c->times.bytes;
    if (c->lane) {
      c->times.on_wire = c->lane->counters().on_wire;
      times.lane = LaneKind::kNccl;
    }
    times.on_wire = std::max(times.on_wire, c->times.on_wire);
    send(*c, handoff::Verdict{status});
    drop(c);
  }
  if (!status.ok()) ++rejected_;
  if (host_.times) host_.times(transfer, times);
  host_.ended(transfer, std::move(status));
}

void HandoffReceiver::send(Channel& channel, const handoff::Frame& frame) {
  channel.spoke = strand_->now();
  channel.link->send(encode_handoff(frame));
}

// Nothing comes over it for us any more.
void HandoffReceiver::drop(const ChannelPtr& channel) {
  channel->over = true;
  meter(*channel, false);
  channel->slot = nullptr;
  if (!channel->lane || channel->lane->end(channel->ending)) let_go(channel);
}

void HandoffReceiver::let_go(const ChannelPtr& channel) {
  if (!channel->link) return;  // `quiet` of a lane that was cut meanwhile
  const auto it = std::find(channels_.begin(), channels_.end(), channel);
  CHECK(it != channels_.end());
  channel->over = true;
  channel->link->close();
  // We may be inside a callback of the link or the lane: let them go afterwards.
  strand_->post(
      [link = std::move(channel->link), lane = std::shared_ptr(std::move(channel->lane))] {});
  channels_.erase(it);
}

}  // namespace headrace::worker
