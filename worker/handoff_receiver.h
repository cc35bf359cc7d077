#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/link.h"
#include "worker/block_stage.h"
#include "worker/handoff_lane.h"
#include "worker/handoff_options.h"
#include "worker/handoff_wire.h"
#include "worker/link_meter.h"

namespace headrace::worker {

// What D has promised to one sender.
struct ReceiveGrant {
  TransferId transfer;
  Attempt attempt{};
  Incarnation decode;  // this process
  HandoffKey key;
  uint32_t tokens = 0;           // whose KV is wanted
  std::vector<BlockRef> blocks;  // from first_block on: at least those of `tokens`
  uint32_t first_block = 0;      // the blocks before it are here already
};

// How a hand-off went, seen from D.
struct ReceiveTimes {
  uint64_t bytes = 0;  // of KV
  Instant first{};     // when the first came; meaningless without bytes
  Duration on_wire{};  // inside chunks; by a lane: of its slots
  LaneKind lane = LaneKind::kTcp;
};

// D's half of all hand-offs: listens, admits a sender by its hello, puts slices into granted
// blocks, verifies. The only writer into granted blocks: only into the block, generation and offset
// that come next, and only what fits. Blocks in the host's memory are written by the link, where a
// slice was told to land, inside tasks of the strand; blocks of a device from staging slots, where
// slices land first. After forget() has said so nothing writes for that transfer: D's proof that
// its reader has stopped.
//
// Every chunk must come once and in order with the right CRC, and Commit must name their count,
// their digest and the granted number of tokens; else the hand-off is rejected and the channel
// closed. A second hello for a stream that is being received is refused; the first goes on. With
// several streams each is checked as above, and all are over with the first that fails.
//
// Where a lane is agreed upon, the bytes of whole blocks arrive in slots, one lent for each that P
// says it has posted, and the ends of chunks may come before them. A channel whose lane is not
// quiet at the end is kept for the lane's notes until it is; nobody waits for that.
class HandoffReceiver {
 public:
  struct Host {
    // Whether this is still the name of a block that is held to be written.
    std::function<bool(BlockRef)> ours;
    BlockMemory memory;
    std::function<void(TransferId)> began;          // a sender was admitted
    std::function<void(TransferId, Status)> ended;  // ok: verified. Already forgotten here
    std::function<void(TransferId, const ReceiveTimes&)> times{};  // just before `ended`; or none
    // The device has ended what it still wrote for it when forget() was called.
    std::function<void(TransferId)> stopped{};
  };
  struct Layout {
    Digest digest;
    uint32_t block_tokens = 0;
    uint64_t block_bytes = 0;
  };

  static Result<std::unique_ptr<HandoffReceiver>> listen(std::shared_ptr<Strand> strand,
                                                         Network& network, const Endpoint& at,
                                                         const HandoffOptions& options,
                                                         const Layout& layout, Host host);
  ~HandoffReceiver();
  HandoffReceiver(const HandoffReceiver&) = delete;

  Endpoint endpoint() const { return listener_->endpoint(); }
  void expect(ReceiveGrant grant);
  // Closes the channel, if there is one; `ended` does not follow. Unknown: nothing happens. True:
  // nothing writes for it any more. False: a device still copies, `stopped` follows.
  bool forget(TransferId transfer);
  // Deadlines and signs of life; the owner calls it each 100 ms.
  void sweep();

  // A chunk has begun to come and not ended: the link is at work. Between chunks the sender still
  // computes, since it sends a chunk when all of it is there.
  bool arriving() const;
  uint64_t refused() const { return refused_; }    // connections turned away before admission
  uint64_t rejected() const { return rejected_; }  // hand-offs that failed a check
  uint64_t bytes_received() const { return bytes_received_; }
  LinkUse link(LaneKind way) const { return links_.use(way); }  // as of the last sweep

 private:
  struct Check {  // of a chunk whose blocks a device is copying
    handoff::ChunkEnd end;
    uint32_t seen = 0;  // blocks
    uint32_t crc = 0;   // of these
  };
  struct Channel {
    std::unique_ptr<Link> link;
    TransferId transfer;  // zero until admitted
    Incarnation peer;     // P
    uint32_t stream = 0;
    uint32_t streams = 1;
    bool verified = false;
    Instant heard{};
    Instant spoke{};
    Instant progress{};
    Instant arriving{};        // since when bytes come that times.on_wire does not count yet
    uint32_t chunk = 0;        // that is being received
    uint32_t chunk_first = 0;  // its first block
    uint32_t block = 0;        // next to be written
    uint32_t offset = 0;       // in it
    uint32_t crc = 0;          // of the chunk so far
    ReceiveTimes times;
    bool metered = false;  // links_ counts the time
    ChunkDigest digest;
    std::optional<handoff::Slice> landing;  // a slice whose bytes are coming to their place
    // Of a device's blocks only.
    BlockStage::SlotPtr slot;  // for blocks from slot_first on
    uint32_t slot_first = 0;
    bool wants_slot = false;            // the link waits for it
    std::map<uint32_t, uint32_t> sums;  // of blocks that were copied, not yet part of a check
    uint32_t summed = 0;                // block whose sum is wanted next
    std::deque<Check> checks;
    std::optional<handoff::Commit> commit;  // waits for them
    std::unique_ptr<HandoffLane> lane;
    uint32_t slots_due = 0;   // that P has posted and that have not come
    Instant slots_vouched{};  // P said last that these are posted
    uint32_t slots_lent = 0;  // of these, for which the lane has one of ours
    Instant slots_moved{};    // one came last, or the first was lent
    Duration slots_wire{};    // of the lane's slots that links_ knows of
    LaneEnding ending = LaneEnding::kOver;
    bool over = false;  // kept for its lane only, or not at all
  };
  struct Expected {
    ReceiveGrant grant;
    std::vector<std::shared_ptr<Channel>> channels;  // by stream; none before the first hello
  };
  using ChannelPtr = std::shared_ptr<Channel>;

  HandoffReceiver(std::shared_ptr<Strand> strand, const HandoffOptions& options,
                  const Layout& layout, Host host);
  void on_accept(std::unique_ptr<Link> link);
  void on_frame(const ChannelPtr& channel, const Bytes& bytes);
  void on_hello(const ChannelPtr& channel, const handoff::Hello& hello);
  LaneTerms open_lane(const ChannelPtr& channel, const handoff::Hello& hello);
  void on_note(const ChannelPtr& channel, const handoff::LaneNote& note);
  Status on(const ChannelPtr& channel, const ReceiveGrant& grant,
            const handoff::SlotPosted& posted);
  void slot_moved(const ChannelPtr& channel, BlockStage::SlotPtr slot, size_t bytes);
  void vouch(Channel& channel, const handoff::Alive& alive);
  bool slots_late(Channel& channel);
  void on_closed(const ChannelPtr& channel, const Status& why);
  static bool between_chunks(const Channel& c) { return c.block == c.chunk_first && c.offset == 0; }
  void note_progress(Channel& channel);
  void meter(Channel& channel, bool under_way);
  Status check_hello(const handoff::Hello& hello) const;
  Landing place(const ChannelPtr& channel, std::span<const std::byte> head, size_t bytes);
  std::byte* slot_memory(const ChannelPtr& channel, const handoff::Slice& slice);
  void got_slot(Channel& channel, BlockStage::SlotPtr slot);
  Status check(const Channel& channel, const ReceiveGrant& grant, const handoff::Slice& slice,
               size_t bytes) const;
  Status landed(const ChannelPtr& channel, const ReceiveGrant& grant, const handoff::Slice& slice);
  void scatter(const ChannelPtr& channel, const ReceiveGrant& grant);
  void scattered(const ChannelPtr& channel, TransferId transfer, uint32_t first,
                 const BlockStage::Copied& copied);
  Status check_sums(Channel& channel);
  Status finish_chunk(Channel& channel, const handoff::ChunkEnd& end, uint32_t crc);
  void finish(const ChannelPtr& channel, const ReceiveGrant& grant);
  Status on(Channel& channel, const ReceiveGrant& grant, const handoff::ChunkEnd& end);
  Status verify(const Channel& channel, const ReceiveGrant& grant,
                const handoff::Commit& commit) const;
  uint32_t blocks_of(const ReceiveGrant& grant) const;
  void conclude(TransferId transfer, Status status);
  void refuse(const ChannelPtr& channel, Status why);
  void end(const ChannelPtr& channel, Status status);
  void send(Channel& channel, const handoff::Frame& frame);
  void drop(const ChannelPtr& channel);
  void let_go(const ChannelPtr& channel);

  std::shared_ptr<Strand> strand_;
  HandoffOptions options_;
  Layout layout_;
  Host host_;
  std::shared_ptr<HandoffReceiver*> self_;  // callbacks hold it weakly
  std::map<TransferId, Expected> expected_;
  std::map<TransferId, uint32_t> copying_;  // a device, for these
  std::vector<ChannelPtr> channels_;
  LinkMeter links_;
  std::unique_ptr<Listener> listener_;
  uint64_t refused_ = 0;
  uint64_t rejected_ = 0;
  uint64_t bytes_received_ = 0;
};

}  // namespace headrace::worker
