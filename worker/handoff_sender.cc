#include "worker/handoff_sender.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "worker/crc32c.h"

namespace headrace::worker {

HandoffSender::HandoffSender(std::shared_ptr<Strand> strand, Network& network,
                             const HandoffOptions& options, SendJob job, BlockMemory memory,
                             std::function<void(Status)> done)
    : strand_(std::move(strand)),
      network_(network),
      options_(options),
      job_(std::move(job)),
      memory_(std::move(memory)),
      done_(std::move(done)),
      self_(std::make_shared<HandoffSender*>(this)) {
  CHECK(options_.slice_bytes > 0 && options_.slice_bytes <= kSliceBytesMax);
  pushed_ = job_.grant.first_block;
  made_ = state_since_ = strand_->now();
  network_.dial(job_.grant.endpoint, options_.dial, {.frame_bytes_max = kHandoffFrameMax}, strand_,
                [weak = std::weak_ptr(self_)](Result<std::unique_ptr<Link>> link) {
                  if (auto self = weak.lock()) (*self)->on_dialled(std::move(link));
                });
}

HandoffSender::~HandoffSender() {
  if (!link_) return;
  link_->close();  // it reads no block any more
  // We may be inside one of its callbacks: let it go afterwards.
  strand_->post([link = std::move(link_)] {});
}

bool HandoffSender::stop(std::function<void()> stopped) {
  if (state_ != State::kEnded) {
    watch_wire();
    state_ = State::kEnded;
    runs_.clear();
    pieces_.clear();
    if (link_) link_->close();
  }
  done_ = nullptr;
  if (gathering_ == 0) return true;
  stopped_ = std::move(stopped);
  return false;
}

void HandoffSender::push(std::vector<BlockId> run) {
  CHECK(!finished_ && pushed_ + run.size() <= job_.grant.first_block + job_.grant.blocks.size());
  if (run.empty()) return;
  const uint32_t first = pushed_;
  pushed_ += static_cast<uint32_t>(run.size());
  runs_.push_back({first, std::move(run), 0});
  prepare();
  pump();
}

void HandoffSender::finish() {
  finished_ = true;
  finished_at_ = strand_->now();
  pump();
}

void HandoffSender::sweep() {
  const Instant now = strand_->now();
  switch (state_) {
    case State::kDialing:  // the network keeps the deadline
    case State::kEnded:
      return;
    case State::kHello:
      if (now - state_since_ >= options_.hello) {
        return end(failure(Errc::kDeadline, "no answer to hello"));
      }
      return;
    case State::kCommitted:
      if (now - state_since_ >= options_.verdict) {
        return end(failure(Errc::kDeadline, "no verdict"));
      }
      break;
    case State::kStreaming:
      watch_wire();
      if (now - moved_ >= options_.stall) {
        return end(failure(Errc::kDeadline, "the decode worker takes no bytes"));
      }
      if (finished_ && now - std::max(finished_at_, state_since_) >= options_.whole) {
        return end(failure(Errc::kDeadline, "not all KV could be sent in time"));
      }
      break;
  }
  if (now - heard_ >= options_.silence) {
    return end(failure(Errc::kDisconnected, "the decode worker has gone silent"));
  }
  if (now - spoke_ >= options_.alive_every) send(handoff::Alive{});
}

void HandoffSender::on_dialled(Result<std::unique_ptr<Link>> link) {
  if (!link) return end(failure(link.error().code, link.error().message));
  link_ = std::move(*link);
  const std::weak_ptr weak = self_;
  link_->on_drained(options_.window_bytes / 2, [weak] {
    if (auto self = weak.lock()) (*self)->pump();
  });
  link_->start(
      [weak](const Bytes& frame) {
        if (auto self = weak.lock()) (*self)->on_frame(frame);
      },
      [weak](const Status& why) {
        if (auto self = weak.lock()) {
          (*self)->end((*self)->failure(Errc::kDisconnected, "closed: " + why.message));
        }
      });
  handoff::Hello hello;
  hello.transfer = job_.transfer;
  hello.attempt = job_.attempt;
  hello.prefill = job_.prefill;
  hello.decode = job_.grant.decode;
  hello.layout = job_.layout;
  hello.tokens = job_.tokens;
  hello.first = job_.grant.first_block;
  hello.mac = hello_mac(hello, job_.grant.key);
  state_ = State::kHello;
  state_since_ = heard_ = strand_->now();
  send(hello);
}

void HandoffSender::on_frame(const Bytes& bytes) {
  if (state_ == State::kEnded) return;
  const auto frame = decode_handoff(bytes);
  if (!frame) return end(failure(Errc::kInvalid, frame.error().message));
  heard_ = strand_->now();
  if (const auto* verdict = std::get_if<handoff::Verdict>(&*frame)) {
    if (!verdict->status.ok()) {
      return end(failure(verdict->status.code, "rejected: " + verdict->status.message));
    }
    if (state_ != State::kCommitted) {
      return end(failure(Errc::kInvalid, "a verdict before the commit"));
    }
    return end({});
  }
  if (std::holds_alternative<handoff::Alive>(*frame)) return;
  if (!std::holds_alternative<handoff::HelloAck>(*frame) || state_ != State::kHello) {
    return end(failure(Errc::kInvalid, "a frame that does not belong here"));
  }
  state_ = State::kStreaming;
  state_since_ = moved_ = heard_;
  pump();
}

// Makes pieces of runs, as many as may be under way.
void HandoffSender::prepare() {
  while (!runs_.empty() && state_ != State::kEnded) {
    if (memory_.stage != nullptr && pieces_.size() >= kAhead) return;
    Run& run = runs_.front();
    take_piece(run, memory_.stage != nullptr ? memory_.stage->slot_blocks() : run.blocks.size());
    if (run.taken == run.blocks.size()) runs_.pop_front();
  }
}

void HandoffSender::take_piece(Run& run, size_t blocks_max) {
  const size_t n = std::min(run.blocks.size() - run.taken, blocks_max);
  const auto begin = run.blocks.begin() + static_cast<ptrdiff_t>(run.taken);
  auto piece = std::make_shared<Piece>();
  piece->blocks.assign(begin, begin + static_cast<ptrdiff_t>(n));
  piece->first = run.first + static_cast<uint32_t>(run.taken);
  piece->run_first = run.first;
  run.taken += n;
  if (run.taken == run.blocks.size()) piece->run_count = static_cast<uint32_t>(run.taken);
  piece->ready = memory_.stage == nullptr;
  pieces_.push_back(piece);
  if (piece->ready) return;
  memory_.stage->lend(kernels::CopyWay::kOut,
                      [weak = std::weak_ptr(self_), piece](BlockStage::SlotPtr slot) {
                        if (auto self = weak.lock()) (*self)->gather(piece, std::move(slot));
                      });
}

void HandoffSender::gather(const PiecePtr& piece, BlockStage::SlotPtr slot) {
  if (state_ == State::kEnded) return;
  piece->slot = std::move(slot);
  ++gathering_;
  memory_.stage->copy(piece->slot, piece->blocks, true,
                      [weak = std::weak_ptr(self_), piece](const BlockStage::Copied& copied) {
                        if (auto self = weak.lock()) (*self)->gathered(piece, copied);
                      });
}

void HandoffSender::gathered(const PiecePtr& piece, const BlockStage::Copied& copied) {
  --gathering_;
  if (state_ == State::kEnded) {
    if (gathering_ == 0 && stopped_) std::exchange(stopped_, nullptr)();
    return;
  }
  if (!copied.status.ok()) return end(failure(Errc::kUnavailable, copied.status.message));
  piece->crcs.assign(copied.crcs.begin(), copied.crcs.end());
  piece->ready = true;
  pump();
}

void HandoffSender::pump() {
  while (state_ == State::kStreaming && link_->unsent() < options_.window_bytes) {
    if (pieces_.empty()) {
      if (!finished_) return watch_wire();
      send(handoff::Commit{chunk_, job_.tokens, digest_.value()});
      state_ = State::kCommitted;
      state_since_ = strand_->now();
      return watch_wire();
    }
    Piece& piece = *pieces_.front();
    if (!piece.ready) return watch_wire();
    if (piece.block < piece.blocks.size()) {
      send_slice(piece);
      continue;
    }
    if (piece.run_count > 0) send_chunk_end(piece);
    pieces_.pop_front();
    prepare();
  }
  watch_wire();
}

// Keeps the times: whether something is on its way, and whether it moves.
void HandoffSender::watch_wire() {
  const Instant now = strand_->now();
  const size_t unsent = link_ && state_ == State::kStreaming ? link_->unsent() : 0;
  const bool waits = state_ == State::kStreaming && (unsent > 0 || !pieces_.empty());
  if (!waits || unsent < unsent_) moved_ = now;
  unsent_ = unsent;
  if (std::exchange(busy_, waits || state_ == State::kCommitted)) on_wire_ += now - busy_since_;
  busy_since_ = now;
}

void HandoffSender::send_slice(Piece& piece) {
  const size_t n = std::min<size_t>(options_.slice_bytes, job_.block_bytes - piece.offset);
  const std::byte* const block = piece.slot
                                     ? piece.slot->host().data() + piece.block * job_.block_bytes
                                     : memory_.host(piece.blocks[piece.block]);
  const std::span<const std::byte> bytes(block + piece.offset, n);
  if (bytes_sent_ == 0) waited_ = strand_->now() - made_;
  moved_ = strand_->now();
  const auto index = static_cast<uint32_t>(piece.first + piece.block);
  const BlockRef target = job_.grant.blocks[index - job_.grant.first_block];
  spoke_ = moved_;
  if (!piece.slot) crc_ = crc32c(bytes, crc_);
  link_->send(encode_slice_head(
                  {chunk_, index, target.generation, static_cast<uint32_t>(piece.offset), bytes}),
              Payload{bytes, piece.slot});
  bytes_sent_ += n;
  piece.offset += n;
  if (piece.offset < job_.block_bytes) return;
  if (piece.slot) crc_ = crc32c_append(crc_, piece.crcs[piece.block], job_.block_bytes);
  piece.offset = 0;
  ++piece.block;
}

void HandoffSender::send_chunk_end(const Piece& piece) {
  send(handoff::ChunkEnd{chunk_, piece.run_first, piece.run_count, crc_});
  digest_.add(chunk_, std::exchange(crc_, 0));
  ++chunk_;
}

void HandoffSender::send(const handoff::Frame& frame) {
  spoke_ = strand_->now();
  link_->send(encode_handoff(frame));
}

void HandoffSender::end(Status status) {
  if (state_ == State::kEnded) return;
  watch_wire();
  state_ = State::kEnded;
  runs_.clear();
  pieces_.clear();
  if (link_) link_->close();
  strand_->post([weak = std::weak_ptr(self_), s = std::move(status)]() mutable {
    if (auto self = weak.lock()) {
      const auto done = std::move((*self)->done_);  // it may destroy the sender
      if (done) done(std::move(s));
    }
  });
}

Status HandoffSender::failure(Errc code, const std::string& what) const {
  // Whatever a peer calls it: the request is good, the channel is not, so it is tried elsewhere.
  const bool ours = code == Errc::kDeadline || code == Errc::kStale || code == Errc::kUnavailable ||
                    code == Errc::kOverloaded;
  if (!ours) code = Errc::kDisconnected;
  return error(code, "KV channel to " + to_string(job_.grant.endpoint) + ": " + what);
}

}  // namespace headrace::worker
