#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/link.h"
#include "protocol/messages.h"
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
// It reads a block only inside its own calls and callbacks, by copying into a frame; so once it is
// destroyed, or has reported an end, nothing here reads the blocks any more: the owner's proof that
// they may be freed. A link that does not drain stops it (window_bytes), not the engine.
class HandoffSender {
 public:
  // Bytes of a block from the offset on, valid until the next call.
  using Memory = std::function<std::span<const std::byte>(BlockId, size_t offset, size_t bytes)>;
  // `done` comes once, posted, never from inside a call and never after destruction: ok when D has
  // taken ownership.
  HandoffSender(std::shared_ptr<Strand> strand, Network& network, const HandoffOptions& options,
                SendJob job, Memory memory, std::function<void(Status)> done);
  ~HandoffSender();
  HandoffSender(const HandoffSender&) = delete;

  // The next blocks of the sequence, from grant.first_block on, are complete and stay so until the
  // end: one chunk.
  void push(std::vector<BlockId> run);
  // All blocks were pushed.
  void finish();
  // Deadlines and signs of life; the owner calls it each 100 ms.
  void sweep();
  uint64_t bytes_sent() const { return bytes_sent_; }
  // From the construction to the first byte of KV; zero before it.
  Duration waited() const { return waited_; }
  // While KV was on its way into the link, or all was sent and the verdict was out.
  Duration on_wire() const { return on_wire_; }
  bool committed() const { return state_ == State::kCommitted; }  // all sent, no verdict yet

 private:
  enum class State : uint8_t { kDialing, kHello, kStreaming, kCommitted, kEnded };
  struct Run {
    uint32_t first = 0;  // index of its first block in the sequence
    std::vector<BlockId> blocks;
    size_t block = 0;   // next to send
    size_t offset = 0;  // in it
    uint32_t crc = 0;
  };

  void on_dialled(Result<std::unique_ptr<Link>> link);
  void on_frame(const Bytes& frame);
  void pump();
  void send_slice(Run& run);
  void send_chunk_end(const Run& run);
  void send(const handoff::Frame& frame);
  void watch_wire();
  void end(Status status);
  Status failure(Errc code, const std::string& what) const;

  std::shared_ptr<Strand> strand_;
  Network& network_;
  HandoffOptions options_;
  SendJob job_;
  Memory memory_;
  std::function<void(Status)> done_;
  std::shared_ptr<HandoffSender*> self_;  // callbacks hold it weakly
  std::unique_ptr<Link> link_;
  State state_ = State::kDialing;
  std::deque<Run> runs_;
  uint32_t pushed_ = 0;  // index of the block to be pushed next
  bool finished_ = false;
  uint32_t chunk_ = 0;
  ChunkDigest digest_;
  uint64_t bytes_sent_ = 0;
  size_t unsent_ = 0;  // in the link, when last looked at
  bool busy_ = false;  // on_wire_ grows
  Instant made_{};
  Instant busy_since_{};
  Instant moved_{};  // bytes went, or there was nothing to send
  Instant finished_at_{};
  Duration waited_{};
  Duration on_wire_{};
  Instant state_since_{};
  Instant heard_{};
  Instant spoke_{};
};

}  // namespace headrace::worker
