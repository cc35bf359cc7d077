#include "worker/handoff_sender.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "worker/crc32c.h"

namespace headrace::worker {

HandoffSender::HandoffSender(std::shared_ptr<Strand> strand, Network& network,
                             const HandoffOptions& options, SendJob job, Memory memory,
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
  // We may be inside one of the link's callbacks: let it go afterwards.
  if (link_) strand_->post([link = std::move(link_)] {});
}

void HandoffSender::push(std::vector<BlockId> run) {
  CHECK(!finished_ && pushed_ + run.size() <= job_.grant.first_block + job_.grant.blocks.size());
  if (run.empty()) return;
  const uint32_t first = pushed_;
  pushed_ += static_cast<uint32_t>(run.size());
  runs_.push_back({first, std::move(run), 0, 0, 0});
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

void HandoffSender::pump() {
  while (state_ == State::kStreaming && link_->unsent() < options_.window_bytes) {
    if (runs_.empty()) {
      if (!finished_) return watch_wire();
      send(handoff::Commit{chunk_, job_.tokens, digest_.value()});
      state_ = State::kCommitted;
      state_since_ = strand_->now();
      return watch_wire();
    }
    Run& run = runs_.front();
    if (run.block < run.blocks.size()) {
      send_slice(run);
    } else {
      send_chunk_end(run);
      runs_.pop_front();
    }
  }
  watch_wire();
}

// Keeps the times: whether something is on its way, and whether it moves.
void HandoffSender::watch_wire() {
  const Instant now = strand_->now();
  const size_t unsent = link_ && state_ == State::kStreaming ? link_->unsent() : 0;
  const bool waits = state_ == State::kStreaming && (unsent > 0 || !runs_.empty());
  if (!waits || unsent < unsent_) moved_ = now;
  unsent_ = unsent;
  if (std::exchange(busy_, waits || state_ == State::kCommitted)) on_wire_ += now - busy_since_;
  busy_since_ = now;
}

void HandoffSender::send_slice(Run& run) {
  const size_t n = std::min<size_t>(options_.slice_bytes, job_.block_bytes - run.offset);
  const auto bytes = memory_(run.blocks[run.block], run.offset, n);
  if (bytes_sent_ == 0) waited_ = strand_->now() - made_;
  moved_ = strand_->now();
  const auto index = static_cast<uint32_t>(run.first + run.block);
  const BlockRef target = job_.grant.blocks[index - job_.grant.first_block];
  send(handoff::Slice{chunk_, index, target.generation, static_cast<uint32_t>(run.offset), bytes});
  run.crc = crc32c(bytes, run.crc);
  bytes_sent_ += n;
  run.offset += n;
  if (run.offset == job_.block_bytes) {
    run.offset = 0;
    ++run.block;
  }
}

void HandoffSender::send_chunk_end(const Run& run) {
  send(handoff::ChunkEnd{chunk_, run.first, static_cast<uint32_t>(run.blocks.size()), run.crc});
  digest_.add(chunk_, run.crc);
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
  if (link_) link_->close();
  strand_->post([weak = std::weak_ptr(self_), s = std::move(status)]() mutable {
    if (auto self = weak.lock()) {
      const auto done = std::move((*self)->done_);  // it may destroy the sender
      done(std::move(s));
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
