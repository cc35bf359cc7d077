#include "protocol/guarded_stream.h"

#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <kj/debug.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace {

using capnp::word;

// One message on its way: `head` are the first eight bytes (count of segments less one, size of the
// first), then the rest of the table, then all segments, in one flat array as on the wire.
struct GuardedStream::Incoming {
  explicit Incoming(std::shared_ptr<PeerTab> t) : tab(std::move(t)) {}
  ~Incoming() noexcept {
    if (tab) tab->credit(charged);
  }
  // Room for as much of the message; what it had is copied.
  void take(size_t room) {
    auto larger = kj::heapArray<word>(room);
    const size_t keep = std::min(room, message.size());
    if (keep > 0) std::memcpy(larger.begin(), message.begin(), keep * sizeof(word));
    message = kj::mv(larger);
    if (!tab) return;
    tab->credit(charged);
    charged = room * sizeof(word);
    tab->charge(charged);
  }
  std::shared_ptr<PeerTab> tab;
  uint64_t charged = 0;
  kj::byte head[8];
  uint32_t segments = 0;
  kj::Array<word> table;
  size_t words = 0;         // of the whole message
  kj::Array<word> message;  // as much of it as has come, and room for the next bytes
  capnp::ReaderOptions options;
};

namespace {

constexpr size_t kFirstRoomWords = (4 << 10) / sizeof(word);  // grows as bytes come
// A question takes more than its bytes: the library's records, promises, the session's.
constexpr uint64_t kQuestionBytes = 2 << 10;
constexpr uint64_t kAnsweredBytes = 256;  // ... and what is left of that until it is finished
constexpr uint64_t kTraversalWordsMin = (64 << 10) / sizeof(word);

uint32_t u32_at(const kj::byte* at) {  // little-endian
  return uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
}

kj::Duration kj_time(Duration d) { return d.count() * kj::NANOSECONDS; }

Duration now_of(kj::Timer& timer) {
  return Duration((timer.now() - kj::origin<kj::TimePoint>()) / kj::NANOSECONDS);
}

}  // namespace

GuardedStream::GuardedStream(kj::AsyncIoStream& stream, kj::Timer& timer, GuardLimits limits,
                             std::shared_ptr<bool> gone, std::shared_ptr<PeerTab> tab,
                             std::shared_ptr<Turnstile> turnstile)
    : stream_(stream),
      timer_(timer),
      limits_(limits),
      gone_(gone ? std::move(gone) : std::make_shared<bool>(false)),
      tab_(std::move(tab)),
      turnstile_(std::move(turnstile)) {}

// --- reading ---------------------------------------------------------------------------------

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> GuardedStream::tryReadMessage(
    kj::ArrayPtr<kj::AutoCloseFd>, capnp::ReaderOptions options, kj::ArrayPtr<word>) {
  return turn_to_read()
      .then([this, options]() { return read_message(options); })
      .then([this](Message message) { return in_its_turn(kj::mv(message)); })
      .then(
          [this](Message message) -> kj::Promise<Message> {
            if (message == nullptr) *gone_ = true;
            return kj::mv(message);
          },
          [this](kj::Exception&& e) -> kj::Promise<Message> {
            *gone_ = true;
            offended_ = e.getType() == kj::Exception::Type::FAILED;
            kj::Promise<Message> failure = kj::mv(e);
            if (!turnstile_ || !stranger()) return failure;
            return turnstile_->pass().then(
                [failure = kj::mv(failure)]() mutable { return kj::mv(failure); });
          });
}

kj::Promise<GuardedStream::Message> GuardedStream::in_its_turn(Message message) {
  if (!turnstile_) return kj::mv(message);
  const bool asks = std::exchange(asks_, false);
  const Duration now = now_of(timer_);
  const bool calm = !asks || now - std::exchange(asked_last_, now) >= limits_.calm;
  // Answers and ends of a known peer are no more than we asked for.
  if (calm && !stranger()) return kj::mv(message);
  return turnstile_->pass().then([message = kj::mv(message)]() mutable { return kj::mv(message); });
}

kj::Promise<GuardedStream::Message> GuardedStream::read_message(capnp::ReaderOptions options) {
  auto owned = kj::heap<Incoming>(tab_);
  Incoming& in = *owned;
  in.options = options;
  // Between messages a peer may be silent for as long as it likes.
  auto first = stream_.tryRead(in.head, 1, sizeof in.head);
  return first
      .then([this, &in](size_t got) -> kj::Promise<Message> {
        if (got == 0) return Message(nullptr);
        arrived_ += got;
        auto whole = fill(in.head + got, in.head + sizeof in.head)
                         .then([this, &in]() { return read_table(in); })
                         .then([this, &in]() { return read_body(in); })
                         .then([this, &in]() { return finish(in); });
        return whole.exclusiveJoin(patience());
      })
      .attach(kj::mv(owned));
}

kj::Promise<void> GuardedStream::read_table(Incoming& in) {
  const uint64_t segments = uint64_t{u32_at(in.head)} + 1;
  KJ_REQUIRE(segments <= limits_.segments_max, "message has more segments than the limit", segments,
             limits_.segments_max);
  in.segments = static_cast<uint32_t>(segments);
  // u32 count, a u32 each, padded to words.
  in.table = kj::heapArray<word>(segments / 2 + 1);
  std::memcpy(in.table.begin(), in.head, sizeof in.head);
  auto table = in.table.asBytes();
  return fill(table.begin() + sizeof in.head, table.end());
}

kj::Promise<void> GuardedStream::read_body(Incoming& in) {
  const auto table = in.table.asBytes();
  uint64_t words = in.table.size();
  for (uint32_t i = 0; i < in.segments; ++i) words += u32_at(table.begin() + 4 + 4 * size_t{i});
  KJ_REQUIRE(in.segments % 2 == 1 || u32_at(table.end() - 4) == 0,
             "the padding of a message's table is not zero");
  const uint64_t limit =
      spoken_to_ ? limits_.bytes_max : std::min(limits_.bytes_max, limits_.first_bytes_max);
  KJ_REQUIRE(words <= limit / sizeof(word), "message is larger than the limit",
             words * sizeof(word), limit);
  in.words = words;
  in.take(std::min<size_t>(in.words, kFirstRoomWords));
  std::memcpy(in.message.begin(), in.table.begin(), table.size());
  auto bytes = in.message.asBytes();
  return fill(bytes.begin() + table.size(), bytes.end()).then([this, &in]() {
    return grow_body(in, in.message.size());
  });
}

// Twice the room each time it is full: what is announced and never sent costs nothing.
kj::Promise<void> GuardedStream::grow_body(Incoming& in, size_t filled) {
  if (filled == in.words) return kj::READY_NOW;
  in.take(std::min(in.words, 2 * filled));
  auto bytes = in.message.asBytes();
  return fill(bytes.begin() + filled * sizeof(word), bytes.end()).then([this, &in]() {
    return grow_body(in, in.message.size());
  });
}

GuardedStream::Message GuardedStream::finish(Incoming& in) {
  if (writing_) read_while_writing_ += in.words * sizeof(word);
  in.options.traversalLimitInWords =
      std::max(kTraversalWordsMin, limits_.traversal_factor * uint64_t{in.words});
  auto reader = kj::heap<capnp::FlatArrayMessageReader>(in.message, in.options);
  if (limits_.questions_max > 0) {
    // A reader of its own, so that looking costs the message nothing of its allowance.
    capnp::FlatArrayMessageReader look(in.message, in.options);
    note_question(look, in.words * sizeof(word));
  }
  spoken_to_ = true;
  return capnp::MessageReaderAndFds{reader.attach(kj::mv(in.message)), nullptr};
}

kj::Promise<void> GuardedStream::fill(kj::byte* at, kj::byte* end) {
  if (at == end) return kj::READY_NOW;
  return stream_.tryRead(at, 1, static_cast<size_t>(end - at))
      .then([this, at, end](size_t got) -> kj::Promise<void> {
        // No offence: a connection may be lost at any byte.
        if (got == 0)
          kj::throwFatalException(
              KJ_EXCEPTION(DISCONNECTED, "the stream ended inside of a message"));
        arrived_ += got;
        return fill(at + got, end);
      });
}

kj::Promise<GuardedStream::Message> GuardedStream::patience() {
  const uint64_t seen = arrived_;
  return timer_.afterDelay(kj_time(limits_.progress_deadline)).then([this, seen]() {
    // Judged after all that has come was read, in case this loop is late.
    return kj::evalLast([this, seen]() -> kj::Promise<Message> {
      const bool grown = arrived_ - seen >= limits_.progress_bytes;
      KJ_REQUIRE(grown || unread(), "a message was begun and did not go on in time");
      return patience();
    });
  });
}

bool GuardedStream::unread() const {
  int bytes = 0;
  KJ_IF_MAYBE (fd, stream_.getFd()) return ioctl(*fd, FIONREAD, &bytes) == 0 && bytes > 0;
  return false;
}

kj::Promise<void> GuardedStream::turn_to_read() {
  const Duration now = now_of(timer_);
  if (read_from_ > now)
    return timer_.afterDelay(kj_time(read_from_ - now)).then([this]() { return turn_to_read(); });
  const bool owes =
      limits_.unread_bytes_max > 0 && writing_ && read_while_writing_ >= limits_.unread_bytes_max;
  if (!owes) return kj::READY_NOW;
  auto paf = kj::newPromiseAndFulfiller<void>();
  wrote_ = kj::mv(paf.fulfiller);
  return paf.promise.then([this]() { return turn_to_read(); });
}

// --- questions -------------------------------------------------------------------------------

// The library keeps a question until it is both finished by the peer and answered by us; what is
// waited for here is the same. An answer counts when it is written, so that answers which the peer
// does not read are counted too.
void GuardedStream::note_question(capnp::MessageReader& reader, uint64_t bytes) {
  namespace rpc = capnp::rpc;
  const auto message = reader.getRoot<rpc::Message>();
  uint32_t id = 0;
  switch (message.which()) {
    case rpc::Message::CALL:
      id = message.getCall().getQuestionId();
      break;
    case rpc::Message::BOOTSTRAP:
      id = message.getBootstrap().getQuestionId();
      break;
    case rpc::Message::FINISH:
      return note_finish(message.getFinish().getQuestionId());
    default:
      return;
  }
  asks_ = true;
  KJ_REQUIRE(questions_.size() < limits_.questions_max, "more open questions than the limit",
             limits_.questions_max);
  bytes += kQuestionBytes;
  if (!questions_.emplace(id, Question{bytes}).second) return;  // the library ends such a peer
  ++unanswered_;
  if (!tab_) return;
  tab_->charge(bytes);
  pace();
}

// Many who ask much must not take the loop from those who ask little.
void GuardedStream::pace() {
  const Duration now = now_of(timer_);
  asked_to_ = std::max(asked_to_, now) + limits_.few_every;
  const bool often = asked_to_ - now > 2 * limits_.few_questions * limits_.few_every;
  if (often) asked_to_ -= limits_.few_every;
  if (often || questions_.size() > limits_.few_questions)
    read_from_ = now + tab_->total().wait_for_turn(now);
}

void GuardedStream::note_finish(uint32_t id) {
  const auto it = questions_.find(id);
  if (it == questions_.end()) return;
  it->second.finished = true;
  if (!it->second.answered) return;
  if (tab_) tab_->finished(it->second.bytes);
  questions_.erase(it);
}

void GuardedStream::note_answer(kj::ArrayPtr<const kj::ArrayPtr<const word>> segments) {
  if (limits_.questions_max == 0) return;
  capnp::ReaderOptions ours;
  ours.traversalLimitInWords = UINT64_MAX;
  capnp::SegmentArrayMessageReader reader(segments, ours);
  const auto message = reader.getRoot<capnp::rpc::Message>();
  if (!message.isReturn()) return;
  const auto it = questions_.find(message.getReturn().getAnswerId());
  if (it == questions_.end()) return;
  Question& question = it->second;
  if (question.answered) return;
  question.answered = true;
  --unanswered_;
  const bool over = question.finished;
  if (tab_) {
    uint64_t bytes = kAnsweredBytes;
    for (const auto& segment : segments) bytes += segment.size() * sizeof(word);
    tab_->credit(question.bytes);
    tab_->wrote(bytes, !over);
    question.bytes = bytes;
    if (unanswered_ == 0) tab_->nothing_queued();
  }
  if (over) questions_.erase(it);
}

// --- writing ---------------------------------------------------------------------------------

kj::Promise<void> GuardedStream::written(kj::Promise<void> write) {
  if (limits_.unread_bytes_max == 0) return write;
  writing_ = true;
  const auto over = [this] {
    writing_ = false;
    read_while_writing_ = 0;
    if (auto waiting = std::exchange(wrote_, nullptr); waiting.get()) waiting->fulfill();
  };
  return timer_.timeoutAfter(kj_time(limits_.write_deadline), kj::mv(write))
      .then([over]() { over(); },
            [this, over](kj::Exception&& e) {
              // The reading side must notice: nothing can be said to this peer any more.
              *gone_ = true;
              kj::runCatchingExceptions([this]() { stream_.abortRead(); });
              over();
              kj::throwRecoverableException(kj::mv(e));
            });
}

kj::Promise<void> GuardedStream::writeMessage(
    kj::ArrayPtr<const int>, kj::ArrayPtr<const kj::ArrayPtr<const word>> segments) {
  note_answer(segments);
  // A lost peer may be noticed at once, by a throw.
  return written(kj::evalNow([&]() { return capnp::writeMessage(stream_, segments); }));
}

kj::Promise<void> GuardedStream::writeMessages(
    kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const word>>> messages) {
  for (const auto& segments : messages) note_answer(segments);
  return written(kj::evalNow([&]() { return capnp::writeMessages(stream_, messages); }));
}

kj::Promise<void> GuardedStream::end() {
  stream_.shutdownWrite();
  return kj::READY_NOW;
}

}  // namespace headrace
