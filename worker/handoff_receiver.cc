#include "worker/handoff_receiver.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/check.h"
#include "protocol/planted.h"
#include "worker/crc32c.h"
#include "worker/step.h"

namespace headrace::worker {
namespace {

// Not kInvalid: the request is good, the channel is not, so it may be tried again elsewhere.
Status wrong(const std::string& what) {
  return error(Errc::kDisconnected, "what came over the KV channel is wrong: " + what);
}

std::string versus(uint64_t got, uint64_t wanted) {
  return std::to_string(got) + ", expected " + std::to_string(wanted);
}

}  // namespace

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
  auto listener = network.listen(
      at, {.frame_bytes_max = kHandoffFrameMax, .first_frame_bytes_max = kHelloBytesMax}, strand,
      [weak = std::weak_ptr(receiver->self_)](auto link) {
        if (auto self = weak.lock()) (*self)->on_accept(std::move(link));
      });
  if (!listener) return std::move(listener).error();
  receiver->listener_ = std::move(*listener);
  return receiver;
}

HandoffReceiver::~HandoffReceiver() {
  while (!channels_.empty()) drop(channels_.back());
}

void HandoffReceiver::expect(ReceiveGrant grant) {
  CHECK(grant.first_block + grant.blocks.size() >= blocks_of(grant));
  CHECK(grant.first_block < blocks_of(grant) && !expected_.count(grant.transfer));
  const TransferId transfer = grant.transfer;
  expected_.emplace(transfer, Expected{std::move(grant), nullptr});
}

bool HandoffReceiver::forget(TransferId transfer) {
  const auto it = expected_.find(transfer);
  if (it == expected_.end()) return true;
  const ChannelPtr channel = it->second.channel;
  expected_.erase(it);
  if (channel) drop(channel);
  return true;
}

void HandoffReceiver::sweep() {
  const Instant now = strand_->now();
  const std::vector<ChannelPtr> channels = channels_;  // ending one changes the list
  for (const ChannelPtr& c : channels) {
    if (!c->transfer) {
      if (now - c->heard >= options_.hello) {
        refuse(c, error(Errc::kDeadline, "no hello in time"));
      }
    } else if (now - c->heard >= options_.silence) {
      end(c, error(Errc::kDisconnected, "the prefill worker has gone silent on the KV channel"));
    } else if (now - c->progress >= options_.progress) {
      end(c, error(Errc::kDeadline, "no KV came over the channel for " +
                                        std::to_string(options_.progress / 1s) + " s"));
    } else if (now - c->spoke >= options_.alive_every) {
      send(*c, handoff::Alive{});
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
        if (self && c)
          (*self)->end(c, error(Errc::kDisconnected, "the KV channel closed: " + why.message));
      });
}

void HandoffReceiver::on_frame(const ChannelPtr& channel, const Bytes& bytes) {
  if (!channel->link) return;  // it has ended
  channel->heard = strand_->now();
  const auto frame = decode_handoff(bytes);
  if (!frame) return end(channel, wrong(frame.error().message));
  if (!channel->transfer) {
    if (const auto* hello = std::get_if<handoff::Hello>(&*frame)) return on_hello(channel, *hello);
    return refuse(channel, wrong("the first frame is not hello"));
  }
  const auto it = expected_.find(channel->transfer);
  CHECK(it != expected_.end() && it->second.channel == channel);
  const ReceiveGrant& grant = it->second.grant;
  Status status;
  if (const auto* slice = std::get_if<handoff::Slice>(&*frame)) {
    note_progress(*channel);
    status = on(*channel, grant, *slice);
  } else if (const auto* chunk = std::get_if<handoff::ChunkEnd>(&*frame)) {
    status = on(*channel, grant, *chunk);
  } else if (const auto* commit = std::get_if<handoff::Commit>(&*frame)) {
    return end(channel, verify(*channel, grant, *commit));
  } else if (!std::holds_alternative<handoff::Alive>(*frame)) {
    status = wrong("a frame that does not belong here");
  }
  if (!status.ok()) end(channel, std::move(status));
}

// Before a slice is taken.
void HandoffReceiver::note_progress(Channel& channel) {
  const bool chunk_begins = channel.block == channel.chunk_first && channel.offset == 0;
  if (channel.times.bytes == 0) channel.times.first = channel.heard;
  if (!chunk_begins) channel.times.on_wire += channel.heard - channel.progress;
  channel.progress = channel.heard;
}

void HandoffReceiver::on_hello(const ChannelPtr& channel, const handoff::Hello& hello) {
  Status status = check_hello(hello);
  if (!status.ok()) return refuse(channel, std::move(status));
  Expected& expected = expected_.at(hello.transfer);
  expected.channel = channel;
  channel->transfer = hello.transfer;
  channel->block = channel->chunk_first = expected.grant.first_block;
  channel->progress = strand_->now();
  send(*channel, handoff::HelloAck{});
  host_.began(hello.transfer);
}

bool HandoffReceiver::arriving() const {
  return std::any_of(channels_.begin(), channels_.end(), [](const ChannelPtr& c) {
    return c->transfer && (c->block != c->chunk_first || c->offset != 0);
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
  if (it->second.channel) return error(Errc::kStale, "this transfer has its channel already");
  return {};
}

Status HandoffReceiver::on(Channel& channel, const ReceiveGrant& grant,
                           const handoff::Slice& slice) {
  if (slice.chunk != channel.chunk) return wrong("chunk " + versus(slice.chunk, channel.chunk));
  if (channel.block >= blocks_of(grant)) return wrong("more blocks than were announced");
  if (slice.block != channel.block) return wrong("block " + versus(slice.block, channel.block));
  if (slice.offset != channel.offset) {
    return wrong("offset " + versus(slice.offset, channel.offset));
  }
  if (slice.bytes.size() > layout_.block_bytes - channel.offset) {
    return wrong("a slice passes the end of its block");
  }
  const BlockRef target = grant.blocks[channel.block - grant.first_block];
  if (slice.generation != target.generation) {
    return error(Errc::kStale,
                 "generation " + versus(raw(slice.generation), raw(target.generation)));
  }
  if (!host_.write(target, channel.offset, slice.bytes))
    return error(Errc::kStale, "the block was freed");
  channel.crc = crc32c(slice.bytes, channel.crc);
  channel.offset += static_cast<uint32_t>(slice.bytes.size());
  bytes_received_ += slice.bytes.size();
  channel.times.bytes += slice.bytes.size();
  if (channel.offset == layout_.block_bytes) {
    channel.offset = 0;
    ++channel.block;
  }
  return {};
}

Status HandoffReceiver::on(Channel& channel, const ReceiveGrant& grant,
                           const handoff::ChunkEnd& end) {
  if (end.chunk != channel.chunk) return wrong("end of chunk " + versus(end.chunk, channel.chunk));
  if (channel.offset != 0) return wrong("a chunk ends inside a block");
  const uint32_t count = channel.block - channel.chunk_first;
  if (count == 0) return wrong("an empty chunk");
  if (end.first != channel.chunk_first || end.count != count) {
    return wrong("end of a chunk of " + std::to_string(end.count) + " blocks from " +
                 std::to_string(end.first) + ", expected " + std::to_string(count) + " from " +
                 std::to_string(channel.chunk_first));
  }
  if (planted(Mistake::kCrcBelieved)) channel.crc = end.crc;
  if (end.crc != channel.crc) {
    return wrong("CRC of chunk " + std::to_string(end.chunk) + " is wrong");
  }
  CHECK(channel.block - grant.first_block <= grant.blocks.size());
  channel.digest.add(channel.chunk, channel.crc);
  channel.crc = 0;
  channel.chunk_first = channel.block;
  ++channel.chunk;
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
  if (channel.block != blocks_of(grant)) {
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
  if (!channel->link) return;
  if (!channel->transfer) {
    ++refused_;
    return drop(channel);
  }
  const TransferId transfer = channel->transfer;
  const ReceiveTimes times = channel->times;
  send(*channel, handoff::Verdict{status});
  expected_.erase(transfer);
  drop(channel);
  if (!status.ok()) {
    ++rejected_;
  }
  if (host_.times) host_.times(transfer, times);
  host_.ended(transfer, std::move(status));
}

void HandoffReceiver::send(Channel& channel, const handoff::Frame& frame) {
  channel.spoke = strand_->now();
  channel.link->send(encode_handoff(frame));
}

void HandoffReceiver::drop(const ChannelPtr& channel) {
  const auto it = std::find(channels_.begin(), channels_.end(), channel);
  CHECK(it != channels_.end());
  channel->link->close();
  // We may be inside one of the link's callbacks: let it go afterwards.
  strand_->post([link = std::move(channel->link)] {});
  channels_.erase(it);
}

}  // namespace headrace::worker
