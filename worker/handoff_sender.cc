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
  if (memory_.stage != nullptr) piece_blocks_ = memory_.stage->slot_blocks();
  if (memory_.stage != nullptr && memory_.lanes != nullptr)
    offered_ = memory_.lanes->offer(job_.grant.decode);
  if (offered_.kind != LaneKind::kTcp) streams_.resize(1);
  for (uint32_t i = 0; i < streams_.size(); ++i) dial(i);
}

void HandoffSender::dial(uint32_t stream) {
  // Past the window there are frames without KV only, which are few, if D reads them.
  const LinkLimits limits{.frame_bytes_max = kHandoffFrameMax,
                          .unsent_bytes_max = options_.window_bytes + 2 * kHandoffFrameMax};
  network_.dial(job_.grant.endpoint, options_.dial, limits, strand_,
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
  done_ = nullptr;
  end({});
  if (gathering_ == 0 && quiet_) return true;
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
  const bool late = now - taken_ >= options_.verdict || now - state_since_ >= options_.whole;
  if (state_ == State::kCommitted && late) return end(failure(Errc::kDeadline, "no verdict"));
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
  if (now - s.spoke >= options_.alive_every)
    send(s, handoff::Alive{static_cast<uint32_t>(slots_posted())});
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
  stream.state = State::kHello;
  stream.since = stream.heard = strand_->now();
  send(stream, hello(index));
}

handoff::Hello HandoffSender::hello(uint32_t stream) const {
  handoff::Hello hello;
  hello.transfer = job_.transfer;
  hello.attempt = job_.attempt;
  hello.prefill = job_.prefill;
  hello.decode = job_.grant.decode;
  hello.layout = job_.layout;
  hello.tokens = job_.tokens;
  hello.first = job_.grant.first_block;
  hello.stream = stream;
  hello.streams = static_cast<uint32_t>(streams_.size());
  hello.lane = offered_;
  hello.mac = hello_mac(hello, job_.grant.key);
  return hello;
}

void HandoffSender::on_closed(const Stream& stream, const Status& why) {
  if (state_ == State::kEnded) {
    if (!quiet_) quiet_ = lane_->end(LaneEnding::kCut);
    return settle();
  }
  if (stream.state == State::kEnded) return;  // after its verdict, while others wait for theirs
  end(failure(Errc::kDisconnected, "closed: " + why.message), LaneEnding::kCut);
}

bool HandoffSender::all(State state) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [state](const Stream& s) { return s.state == state; });
}

void HandoffSender::on_frame(Stream& stream, const Bytes& bytes) {
  if (state_ == State::kEnded && quiet_) return;
  const auto frame = decode_handoff(bytes);
  if (!frame) return end(failure(Errc::kInvalid, frame.error().message));
  stream.heard = strand_->now();
  if (const auto* note = std::get_if<handoff::LaneNote>(&*frame); note != nullptr && lane_) {
    const Status status = lane_->heard(note->bytes);
    return status.ok() ? void() : end(failure(Errc::kInvalid, status.message));
  }
  if (state_ == State::kEnded) return;
  if (const auto* verdict = std::get_if<handoff::Verdict>(&*frame)) {
    return on_verdict(stream, *verdict);
  }
  if (const auto* alive = std::get_if<handoff::Alive>(&*frame)) {
    // What the link has taken may be on its way for long.
    if (alive->count > stream.taken) taken_ = stream.heard;
    stream.taken = std::max(stream.taken, alive->count);
    return;
  }
  const auto* ack = std::get_if<handoff::HelloAck>(&*frame);
  if (ack == nullptr || stream.state != State::kHello)
    return end(failure(Errc::kInvalid, "a frame that does not belong here"));
  on_ack(stream, *ack);
}

void HandoffSender::on_ack(Stream& stream, const handoff::HelloAck& ack) {
  const auto index = static_cast<uint32_t>(&stream - streams_.data());
  if (!ack_mac_ok(hello(index), ack, job_.grant.key))
    return end(failure(Errc::kInvalid, "hello-ack is not signed with the transfer's key"));
  if (Status status = open_lane(ack.lane); !status.ok())
    return end(failure(status.code, status.message));
  stream.state = State::kStreaming;
  if (!all(State::kStreaming)) return;
  state_ = State::kStreaming;
  state_since_ = moved_ = stream.heard;
  prepare();
  pump();
}

// As D has answered; not ok: that is no answer to what was offered.
Status HandoffSender::open_lane(const LaneTerms& answered) {
  if (answered.kind != LaneKind::kTcp && offered_.kind != answered.kind)
    return error(Errc::kInvalid, "a lane that was not offered");
  if (offered_.kind == LaneKind::kTcp) return {};
  if (Status status = memory_.lanes->agree(offered_, answered); !status.ok()) return status;
  if (answered.kind == LaneKind::kTcp) return {};
  const uint64_t fit = std::min(offered_.slot_bytes, answered.slot_bytes) / job_.block_bytes;
  if (fit == 0) return error(Errc::kInvalid, "a lane whose slots hold no block");
  piece_blocks_ = static_cast<uint32_t>(std::min<uint64_t>(piece_blocks_, fit));
  HandoffLane::Host host;
  host.tell = [this](const Bytes& note) { send(streams_[0], handoff::LaneNote{note}); };
  host.moved = [this](const BlockStage::SlotPtr&, size_t bytes) { slot_moved(bytes); };
  host.failed = [this](const Status& why) { end(failure(why.code, why.message)); };
  host.quiet = [this] {
    quiet_ = true;
    settle();
  };
  lane_ = std::make_unique<HandoffLane>(memory_.lanes, LaneEnd::kPrefill, job_.grant.decode,
                                        answered, std::move(host));
  return {};
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

// Makes pieces of runs, as many as may be under way, once it is known where to.
void HandoffSender::prepare() {
  const bool waits = offered_.kind != LaneKind::kTcp && state_ < State::kStreaming;
  while (!runs_.empty() && state_ != State::kEnded && !waits) {
    if (memory_.stage != nullptr && pieces_.size() + slots_posted() >= kAhead) return;
    Run& run = runs_.front();
    take_piece(run, memory_.stage != nullptr ? piece_blocks_ : run.blocks.size());
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
  memory_.stage->copy(piece->slot, piece->blocks, lane_ == nullptr,
                      [weak = std::weak_ptr(self_), piece](const BlockStage::Copied& copied) {
                        if (auto self = weak.lock()) (*self)->gathered(piece, copied);
                      });
}

void HandoffSender::gathered(const PiecePtr& piece, const BlockStage::Copied& copied) {
  --gathering_;
  if (state_ == State::kEnded) return settle();
  if (!copied.status.ok()) return end(failure(Errc::kUnavailable, copied.status.message));
  piece->crcs.assign(copied.crcs.begin(), copied.crcs.end());
  piece->ready = true;
  pump();
}

void HandoffSender::pump() {
  while (state_ == State::kStreaming) {
    if (pieces_.empty()) {
      if (finished_ && all_moved()) commit();
      break;
    }
    Piece& piece = *pieces_.front();
    if (!piece.ready) break;
    if (lane_) {
      post_slot(piece);
    } else if (piece.block < piece.blocks.size()) {
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
  state_since_ = taken_ = strand_->now();
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
  const bool waits =
      state_ == State::kStreaming && (unsent > 0 || !pieces_.empty() || slots_posted() > 0);
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

void HandoffSender::post_slot(Piece& piece) {
  if (bytes_sent_ == 0 && slots_posted() == 0) waited_ = strand_->now() - made_;
  moved_ = strand_->now();
  Stream& s = streams_[0];
  for (const uint32_t crc : piece.crcs) s.crc = crc32c_append(s.crc, crc, job_.block_bytes);
  if (s.count == 0) s.first = piece.first;
  s.count += static_cast<uint32_t>(piece.blocks.size());
  lane_->post(piece.slot, piece.blocks.size() * job_.block_bytes);
  piece.slot = nullptr;
  send(s, handoff::SlotPosted{});
}

void HandoffSender::slot_moved(size_t bytes) {
  if (state_ == State::kEnded) return;
  bytes_sent_ += bytes;
  moved_ = strand_->now();
  prepare();
  pump();
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

void HandoffSender::end(Status status, LaneEnding why) {
  if (state_ == State::kEnded) return;
  watch_wire();
  state_ = State::kEnded;
  runs_.clear();
  pieces_.clear();
  outcome_ = std::move(status);
  quiet_ = !lane_ || lane_->end(why);
  settle();
}

// Once it has ended and nothing moves any more.
void HandoffSender::settle() {
  if (!quiet_) return;
  close();
  if (auto status = std::exchange(outcome_, std::nullopt)) {
    strand_->post([weak = std::weak_ptr(self_), s = std::move(*status)]() mutable {
      if (auto self = weak.lock()) {
        const auto done = std::move((*self)->done_);  // it may destroy the sender
        if (done) done(std::move(s));
      }
    });
  }
  if (gathering_ == 0 && stopped_) std::exchange(stopped_, nullptr)();
}

Status HandoffSender::failure(Errc code, const std::string& what) const {
  // Whatever a peer calls it: the request is good, the channel is not, so it is tried elsewhere.
  const bool ours = code == Errc::kDeadline || code == Errc::kStale || code == Errc::kUnavailable ||
                    code == Errc::kOverloaded;
  if (!ours) code = Errc::kDisconnected;
  return error(code, "KV channel to " + to_string(job_.grant.endpoint) + ": " + what);
}

}  // namespace headrace::worker
