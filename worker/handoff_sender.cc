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
  CHECK(options_.streams > 0 && options_.streams <= kHandoffStreamsMax);
  pushed_ = job_.grant.first_block;
  made_ = state_since_ = strand_->now();
  // A stream without blocks would have nothing to commit.
  const size_t blocks = std::max<size_t>(job_.grant.blocks.size(), 1);
  streams_.resize(std::min<size_t>(options_.streams, blocks));
  for (uint32_t i = 0; i < streams_.size(); ++i) dial(i);
}

void HandoffSender::dial(uint32_t stream) {
  network_.dial(job_.grant.endpoint, options_.dial, {.frame_bytes_max = kHandoffFrameMax}, strand_,
                [weak = std::weak_ptr(self_), stream](Result<std::unique_ptr<Link>> link) {
                  if (auto self = weak.lock()) (*self)->on_dialled(stream, std::move(link));
                });
}

HandoffSender::~HandoffSender() {
  close();  // links read no block any more
  // We may be inside one of their callbacks: let them go afterwards.
  for (Stream& s : streams_)
    if (s.link) strand_->post([link = std::move(s.link)] {});
}

void HandoffSender::close() {
  for (Stream& s : streams_)
    if (s.link) s.link->close();
}

bool HandoffSender::stop(std::function<void()> stopped) {
  if (state_ != State::kEnded) {
    watch_wire();
    state_ = State::kEnded;
    runs_.clear();
    pieces_.clear();
    close();
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
  if (state_ == State::kCommitted && now - state_since_ >= options_.verdict) {
    return end(failure(Errc::kDeadline, "no verdict"));
  }
  if (state_ == State::kStreaming) {
    watch_wire();
    if (now - moved_ >= options_.stall) {
      return end(failure(Errc::kDeadline, "the decode worker takes no bytes"));
    }
    if (finished_ && now - std::max(finished_at_, state_since_) >= options_.whole) {
      return end(failure(Errc::kDeadline, "not all KV could be sent in time"));
    }
  }
  for (Stream& s : streams_) {
    if (state_ == State::kEnded || !alive(s, now)) return;
  }
}

// False: it has ended. While it is dialled the network keeps the deadline.
bool HandoffSender::alive(Stream& s, Instant now) {
  if (s.state == State::kDialing || s.state == State::kEnded) return true;
  if (s.state == State::kHello) {
    if (now - s.since < options_.hello) return true;
    end(failure(Errc::kDeadline, "no answer to hello"));
    return false;
  }
  if (now - s.heard >= options_.silence) {
    end(failure(Errc::kDisconnected, "the decode worker has gone silent"));
    return false;
  }
  if (now - s.spoke >= options_.alive_every) send(s, handoff::Alive{});
  return true;
}

void HandoffSender::on_dialled(uint32_t index, Result<std::unique_ptr<Link>> link) {
  if (state_ == State::kEnded) return;
  if (!link) return end(failure(link.error().code, link.error().message));
  Stream& stream = streams_[index];
  stream.link = std::move(*link);
  const std::weak_ptr weak = self_;
  stream.link->on_drained(options_.window_bytes / 2, [weak] {
    if (auto self = weak.lock()) (*self)->pump();
  });
  stream.link->start(
      [weak, index](const Bytes& frame) {
        if (auto self = weak.lock()) (*self)->on_frame((*self)->streams_[index], frame);
      },
      [weak, index](const Status& why) {
        if (auto self = weak.lock()) (*self)->on_closed((*self)->streams_[index], why);
      });
  handoff::Hello hello;
  hello.transfer = job_.transfer;
  hello.attempt = job_.attempt;
  hello.prefill = job_.prefill;
  hello.decode = job_.grant.decode;
  hello.layout = job_.layout;
  hello.tokens = job_.tokens;
  hello.first = job_.grant.first_block;
  hello.stream = index;
  hello.streams = static_cast<uint32_t>(streams_.size());
  hello.mac = hello_mac(hello, job_.grant.key);
  stream.state = State::kHello;
  stream.since = stream.heard = strand_->now();
  send(stream, hello);
}

void HandoffSender::on_closed(const Stream& stream, const Status& why) {
  if (stream.state == State::kEnded) return;  // after its verdict, while others wait for theirs
  end(failure(Errc::kDisconnected, "closed: " + why.message));
}

bool HandoffSender::all(State state) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [state](const Stream& s) { return s.state == state; });
}

void HandoffSender::on_frame(Stream& stream, const Bytes& bytes) {
  if (state_ == State::kEnded) return;
  const auto frame = decode_handoff(bytes);
  if (!frame) return end(failure(Errc::kInvalid, frame.error().message));
  stream.heard = strand_->now();
  if (const auto* verdict = std::get_if<handoff::Verdict>(&*frame)) {
    return on_verdict(stream, *verdict);
  }
  if (std::holds_alternative<handoff::Alive>(*frame)) return;
  if (!std::holds_alternative<handoff::HelloAck>(*frame) || stream.state != State::kHello) {
    return end(failure(Errc::kInvalid, "a frame that does not belong here"));
  }
  stream.state = State::kStreaming;
  if (!all(State::kStreaming)) return;
  state_ = State::kStreaming;
  state_since_ = moved_ = stream.heard;
  pump();
}

void HandoffSender::on_verdict(Stream& stream, const handoff::Verdict& verdict) {
  if (!verdict.status.ok()) {
    return end(failure(verdict.status.code, "rejected: " + verdict.status.message));
  }
  if (stream.state != State::kCommitted) {
    return end(failure(Errc::kInvalid, "a verdict before the commit"));
  }
  stream.state = State::kEnded;
  if (all(State::kEnded)) end({});
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
  run.taken += n;
  piece->ends_run = run.taken == run.blocks.size();
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
  while (state_ == State::kStreaming) {
    if (pieces_.empty()) {
      if (finished_) commit();
      break;
    }
    Piece& piece = *pieces_.front();
    if (!piece.ready) break;
    if (piece.block < piece.blocks.size()) {
      const Stream& s = stream_of(piece.first + static_cast<uint32_t>(piece.block));
      if (s.link->unsent() >= options_.window_bytes) break;
      send_slice(piece);
      continue;
    }
    if (piece.ends_run) send_chunk_ends();
    pieces_.pop_front();
    prepare();
  }
  watch_wire();
}

void HandoffSender::commit() {
  state_ = State::kCommitted;
  state_since_ = strand_->now();
  for (Stream& s : streams_) {
    s.state = State::kCommitted;
    send(s, handoff::Commit{s.chunk, job_.tokens, s.digest.value()});
  }
}

size_t HandoffSender::unsent() const {
  size_t bytes = 0;
  for (const Stream& s : streams_)
    if (s.link) bytes += s.link->unsent();
  return bytes;
}

// Keeps the times: whether something is on its way, and whether it moves.
void HandoffSender::watch_wire() {
  const Instant now = strand_->now();
  const size_t unsent = state_ == State::kStreaming ? this->unsent() : 0;
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
  Stream& s = stream_of(index);
  s.spoke = moved_;
  if (!piece.slot) s.crc = crc32c(bytes, s.crc);
  s.link->send(encode_slice_head(
                   {s.chunk, index, target.generation, static_cast<uint32_t>(piece.offset), bytes}),
               Payload{bytes, piece.slot});
  bytes_sent_ += n;
  piece.offset += n;
  if (piece.offset < job_.block_bytes) return;
  if (piece.slot) s.crc = crc32c_append(s.crc, piece.crcs[piece.block], job_.block_bytes);
  if (s.count++ == 0) s.first = index;
  piece.offset = 0;
  ++piece.block;
}

// Of all streams that had a part in the run.
void HandoffSender::send_chunk_ends() {
  for (Stream& s : streams_) {
    if (s.count == 0) continue;
    const uint32_t crc = std::exchange(s.crc, 0);
    send(s, handoff::ChunkEnd{s.chunk, s.first, std::exchange(s.count, 0), crc});
    s.digest.add(s.chunk++, crc);
  }
}

void HandoffSender::send(Stream& stream, const handoff::Frame& frame) {
  stream.spoke = strand_->now();
  stream.link->send(encode_handoff(frame));
}

void HandoffSender::end(Status status) {
  if (state_ == State::kEnded) return;
  watch_wire();
  state_ = State::kEnded;
  runs_.clear();
  pieces_.clear();
  close();
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
