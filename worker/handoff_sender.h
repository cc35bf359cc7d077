#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/link.h"
#include "protocol/messages.h"
#include "worker/block_stage.h"
#include "worker/handoff_lane.h"
#include "worker/handoff_options.h"
#include "worker/handoff_wire.h"

namespace headrace::worker {

// Everything that one hand-off needs to know of its goal. Blocks before grant.first_block are D's
// already and are not sent.
struct SendJob {
  TransferId transfer;
  Attempt attempt{};
  Incarnation prefill;  // this process
  Digest layout;
  uint64_t block_bytes = 0;
  uint32_t tokens = 0;
  GrantedBlocks grant;
};

// P's half of one hand-off: dials D, says hello, pushes runs of finished blocks while later ones
// are computed, commits, waits for the verdict. Lives on one strand with its owner.
//
// Blocks in the host's memory are read by its link, inside tasks of the strand; blocks of a device
// are first copied to staging slots, kAhead at a time, while the one before is on its way. After
// stop() has said so nothing here reads the blocks any more: the owner's proof that they may be
// freed. A link that does not drain stops it (window_bytes), not the engine.
//
// With several streams, a channel each, blocks go out in turns; the hand-off is as far as the last
// of its streams. Where a lane can be offered there is one stream, and if D takes it, slots go out
// over it as they are on the device; the channel is kept until the lane is quiet.
class HandoffSender {
 public:
  static constexpr size_t kAhead = 2;

  // `done` comes once, posted, never from inside a call and never after destruction: ok when D has
  // taken ownership.
  HandoffSender(std::shared_ptr<Strand> strand, Network& network, const HandoffOptions& options,
                SendJob job, BlockMemory memory, std::function<void(Status)> done);
  ~HandoffSender();
  HandoffSender(const HandoffSender&) = delete;

  // The next blocks of the sequence, from grant.first_block on, are complete and stay so until the
  // end: one chunk.
  void push(std::vector<BlockId> run);
  // All blocks were pushed.
  void finish();
  // Deadlines and signs of life; the owner calls it each 100 ms.
  void sweep();
  // Ends it, if it has not ended; `done` does not follow. True: no block or slot is read any more.
  // False: the device or the lane still does; `stopped` follows when it has ended, and only then
  // may this be destroyed.
  bool stop(std::function<void()> stopped);
  uint64_t bytes_sent() const { return bytes_sent_; }
  // From the construction to the first byte of KV; zero before it.
  Duration waited() const { return waited_; }
  // While KV was on its way into the link, or all was sent and the verdict was out.
  // By a lane: of its slots.
  Duration on_wire() const { return lane_ ? lane_->counters().on_wire : on_wire_; }
  LaneKind lane_kind() const { return lane_ ? LaneKind::kNccl : LaneKind::kTcp; }
  bool committed() const { return state_ == State::kCommitted; }  // all sent, no verdict yet

 private:
  enum class State : uint8_t { kDialing, kHello, kStreaming, kCommitted, kEnded };
  struct Run {
    uint32_t first = 0;  // index of its first block in the sequence
    std::vector<BlockId> blocks;
    size_t taken = 0;  // so many are in pieces
  };
  // Blocks of one run that are ready to go out, or will be: all of it, or what a slot holds.
  struct Piece {
    std::vector<BlockId> blocks;
    std::vector<uint32_t> crcs;  // of the blocks, where the device has made them
    BlockStage::SlotPtr slot;    // none: in the host's memory
    bool ready = false;
    uint32_t first = 0;     // index of its first block in the sequence
    bool ends_run = false;  // it is the last of its run
    size_t block = 0;       // next to send
    size_t offset = 0;      // in it
  };
  using PiecePtr = std::shared_ptr<Piece>;

  struct Stream {
    std::unique_ptr<Link> link;
    State state = State::kDialing;
    Instant since{};  // of its state
    Instant heard{};
    Instant spoke{};
    uint32_t taken = 0;  // KiB, the most that D has said
    uint32_t chunk = 0;
    uint32_t first = 0;  // of the chunk under way
    uint32_t count = 0;  // its blocks so far
    uint32_t crc = 0;    // of these
    ChunkDigest digest;
  };

  void dial(uint32_t stream);
  void on_dialled(uint32_t stream, Result<std::unique_ptr<Link>> link);
  void on_frame(Stream& stream, const Bytes& frame);
  void on_closed(const Stream& stream, const Status& why);
  void on_ack(Stream& stream, const handoff::HelloAck& ack);
  Status open_lane(const LaneTerms& answered);
  void on_verdict(Stream& stream, const handoff::Verdict& verdict);
  bool all(State state) const;
  Stream& stream_of(uint32_t block) {
    return streams_[(block - job_.grant.first_block) % streams_.size()];
  }
  size_t unsent() const;
  handoff::Hello hello(uint32_t stream) const;
  void close();
  void settle();
  bool alive(Stream& stream, Instant now);
  void prepare();
  void take_piece(Run& run, size_t blocks_max);
  void gather(const PiecePtr& piece, BlockStage::SlotPtr slot);
  void gathered(const PiecePtr& piece, const BlockStage::Copied& copied);
  void pump();
  bool all_moved() const { return pieces_.empty() && runs_.empty() && slots_posted() == 0; }
  size_t slots_posted() const { return lane_ ? lane_->posted() : 0; }
  void send_slice(Piece& piece);
  void post_slot(Piece& piece);
  void slot_moved(size_t bytes);
  void send_chunk_ends();
  void commit();
  void send(Stream& stream, const handoff::Frame& frame);
  void watch_wire();
  void end(Status status, LaneEnding why = LaneEnding::kOver);
  Status failure(Errc code, const std::string& what) const;

  std::shared_ptr<Strand> strand_;
  Network& network_;
  HandoffOptions options_;
  SendJob job_;
  BlockMemory memory_;
  std::function<void(Status)> done_;
  std::shared_ptr<HandoffSender*> self_;  // callbacks hold it weakly
  std::vector<Stream> streams_;
  State state_ = State::kDialing;
  std::optional<Status> outcome_;  // told once nothing moves
  bool quiet_ = true;              // the lane, if there is one, as of the end
  std::function<void()> stopped_;
  std::deque<Run> runs_;  // not yet in pieces
  std::deque<PiecePtr> pieces_;
  size_t gathering_ = 0;  // copies of the device under way
  uint32_t pushed_ = 0;   // index of the block to be pushed next
  bool finished_ = false;
  uint64_t bytes_sent_ = 0;
  size_t unsent_ = 0;  // in the link, when last looked at
  bool busy_ = false;  // on_wire_ grows
  Instant made_{};
  Instant busy_since_{};
  Instant moved_{};  // bytes went, or there was nothing to send
  Instant finished_at_{};
  Instant taken_{};  // all was sent, or D has said later that more has come
  Duration waited_{};
  Duration on_wire_{};
  Instant state_since_{};
  LaneTerms offered_;
  uint32_t piece_blocks_ = 0;  // the most that a slot takes
  std::unique_ptr<HandoffLane> lane_;
};

}  // namespace headrace::worker
