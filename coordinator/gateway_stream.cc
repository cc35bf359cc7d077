#include "coordinator/gateway_stream.h"

#include <utility>

#include "coordinator/gateway_words.h"
#include "coordinator/limits.h"

namespace headrace::coordinator {

static constexpr uint64_t kChunkBytes = 1 << 10;  // of a call under way, besides its message

GatewayStream::GatewayStream(GatewayCore& core, std::shared_ptr<const bool> gone,
                             std::shared_ptr<Standing> standing, std::shared_ptr<PeerTab> tab,
                             RequestId id, uint64_t owner, api::TokenSink::Client sink,
                             kj::Own<kj::PromiseFulfiller<Ended>> done)
    : core_(core),
      gone_(std::move(gone)),
      standing_(std::move(standing)),
      tab_(std::move(tab)),
      id_(id),
      owner_(owner),
      sink_(kj::mv(sink)),
      done_(kj::mv(done)),
      writes_(*this) {
  ++core_.open_streams;
}

GatewayStream::~GatewayStream() noexcept {
  --core_.open_streams;
  if (!heard_) {
    standing_->over(first_ + pending_.size() > 0);
    tab_->know(standing_->trusted());
  }
  for (const Write& write : pending_)
    if (!write.returned) tab_->credit(write.bytes);
  // The answer may have ended and its tail be on its way to a client that is lost: a resumable one
  // is then kept for the client's return.
  if (!ended_ || (!completed_ && *gone_)) leave(*gone_);
}

void GatewayStream::leave(bool lost) {
  if (std::exchange(left_, true)) return;
  if (lost)
    core_.dispatcher.tell(Detach{id_, owner_});
  else
    core_.dispatcher.tell(Abandon{id_, owner_});
}

// Up to 64 of these wait for a client that reads nothing: without a size each would take 8 KiB.
static capnp::MessageSize size_of(const Chunk& chunk) {
  uint64_t words = 16 + chunk.ids.size() / 2 + chunk.text.size() / 8;
  for (const Logprobs& one : chunk.logprobs) words += 4 + one.top.size();
  return {words, 0};
}

void GatewayStream::on(Chunk chunk) {
  if (broken_) return;
  const auto size = size_of(chunk);
  auto call = sink_.writeRequest(size);
  write(call.initChunk(), chunk);
  const uint64_t number = first_ + pending_.size();
  const uint64_t bytes = kChunkBytes + size.wordCount * sizeof(capnp::word);
  pending_.push_back({chunk.position + static_cast<uint32_t>(chunk.ids.size()), false, bytes});
  tab_->charge(bytes);
  writes_.add(call.send().then([this, number](auto&&) { returned(number); }));
}

void GatewayStream::on(Ended ended) {
  if (ended_) return;
  ended_ = std::move(ended);
  // A client that does not return its last writes waits in vain.
  late_ = core_.strand->after(kClientStall, [this] { complete(); });
  // What was cut off is not waited for.
  if (ended_->finish == Finish::kCancelled || broken_) return complete();
  complete_if_written();
}

// A client may return its writes in any order; credit counts the unbroken front.
void GatewayStream::returned(uint64_t number) {
  if (!std::exchange(heard_, true)) {
    standing_->took();
    tab_->know(true);
  }
  pending_.at(number - first_).returned = true;
  tab_->credit(pending_.at(number - first_).bytes);
  const uint64_t before = first_;
  uint32_t end = 0;
  while (!pending_.empty() && pending_.front().returned) {
    end = pending_.front().end;
    pending_.pop_front();
    ++first_;
  }
  if (first_ != before && !ended_) core_.dispatcher.tell(Acknowledge{id_, end, owner_});
  complete_if_written();
}

void GatewayStream::taskFailed(kj::Exception&& why) {
  const bool lost = *gone_ || why.getType() == kj::Exception::Type::DISCONNECTED;
  if (!lost) broken_ = true;
  if (ended_ && !lost) return complete();
  leave(lost);  // answered by Ended, unless the request goes on without us
}

void GatewayStream::complete_if_written() {
  if (ended_ && pending_.empty()) complete();
}

void GatewayStream::complete() {
  if (std::exchange(completed_, true)) return;
  if (broken_) {
    ended_->finish = Finish::kCancelled;
    ended_->status = error(Errc::kCancelled, "the client's sink failed");
  }
  done_->fulfill(std::move(*ended_));
}

}  // namespace headrace::coordinator
