#pragma once

#include <capnp/serialize-async.h>

#include <cstdint>
#include <map>
#include <memory>

#include "protocol/peer_tab.h"
#include "protocol/strand.h"
#include "protocol/turnstile.h"

namespace headrace {

struct GuardLimits {
  uint32_t segments_max = 64;
  uint64_t bytes_max = 1 << 20;        // of one message, its table of segments included
  uint64_t first_bytes_max = 1 << 20;  // of the first one: who has said nothing gets little
  // A begun message must grow by progress_bytes, or end, each progress_deadline.
  Duration progress_deadline = 5s;
  uint64_t progress_bytes = 4096;
  int send_buffer = 16 << 10;  // reported to the library as its window
  // The side that serves, else 0: questions (calls and bootstraps) not yet both answered and
  // finished; one more throws.
  uint32_t questions_max = 0;
  // The side that serves, else 0: while the peer does not read what it was sent, no more than
  // this is read from it, and after write_deadline the stream ends.
  uint64_t unread_bytes_max = 0;
  Duration write_deadline = 60s;
  // With a turnstile: a question so long after the one before is taken at once, else in its turn;
  // of a peer whose tab says that it is not known, everything is taken in its turn, its end too.
  Duration calm = 5ms;
  // With a tab: a peer with more open questions than these, or that has asked this often, asks
  // much: after each question it waits for its turn among all such (peer_tab.h).
  uint32_t few_questions = 4;
  Duration few_every = 4ms;  // in the mean; twice few_questions at once
  // Pointers followed in a message: so many times its size, and never less than 64 KiB.
  uint32_t traversal_factor = 4;
};

// Cap'n Proto messages over a byte stream, for peers that are not trusted. The library's own reader
// (0.9.2) believes the segment table and allocates first, and takes any number of questions; here
// counts and sizes are checked before a byte is reserved, and memory grows only as bytes arrive. A
// message that breaks a limit throws; the RPC system answers with an abort and closes. Lives on the
// KJ loop; the stream and timer must outlive it.
class GuardedStream final : public capnp::MessageStream {
 public:
  // `gone`, if given, becomes true when the stream has ended or broken a limit, before the RPC
  // system hears of it: calls that die after that were lost, not dropped. `tab`, if given, is
  // charged with what this peer makes us hold. `turnstile`, if given, is shared by all peers.
  GuardedStream(kj::AsyncIoStream& stream, kj::Timer& timer, GuardLimits limits,
                std::shared_ptr<bool> gone = nullptr, std::shared_ptr<PeerTab> tab = nullptr,
                std::shared_ptr<Turnstile> turnstile = nullptr);

  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> tryReadMessage(
      kj::ArrayPtr<kj::AutoCloseFd> fd_space, capnp::ReaderOptions options,
      kj::ArrayPtr<capnp::word> scratch) override;
  kj::Promise<void> writeMessage(
      kj::ArrayPtr<const int> fds,
      kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) override;
  kj::Promise<void> writeMessages(
      kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) override;
  kj::Maybe<int> getSendBufferSize() override { return limits_.send_buffer; }
  kj::Promise<void> end() override;
  // Whether the peer has said a whole message.
  bool spoken_to() const { return spoken_to_; }
  // Whether the peer broke a limit or a rule, as far as can be seen here.
  bool offended() const { return offended_; }

 private:
  using Message = kj::Maybe<capnp::MessageReaderAndFds>;
  struct Incoming;
  struct Question {
    uint64_t bytes = 0;  // on the tab: of the question, then of its answer
    bool finished = false;
    bool answered = false;
  };
  bool stranger() const { return tab_ && !tab_->known(); }
  // Hands a message on, at once or in this peer's turn.
  kj::Promise<Message> in_its_turn(Message message);
  kj::Promise<Message> read_message(capnp::ReaderOptions options);
  kj::Promise<void> read_table(Incoming& in);
  kj::Promise<void> read_body(Incoming& in);
  kj::Promise<void> grow_body(Incoming& in, size_t filled);
  Message finish(Incoming& in);
  // Fills [at, end).
  kj::Promise<void> fill(kj::byte* at, kj::byte* end);
  // Throws when a begun message has not grown for too long. Never because this loop was late: what
  // lies in the socket unread counts for the peer.
  kj::Promise<Message> patience();
  bool unread() const;
  // Waits while the peer has to read first, or asks too much.
  kj::Promise<void> turn_to_read();
  kj::Promise<void> written(kj::Promise<void> write);

  void note_question(capnp::MessageReader& message, uint64_t bytes);
  void note_finish(uint32_t id);
  void pace();
  void note_answer(kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments);

  kj::AsyncIoStream& stream_;
  kj::Timer& timer_;
  GuardLimits limits_;
  std::shared_ptr<bool> gone_;
  bool spoken_to_ = false;
  bool offended_ = false;
  uint64_t arrived_ = 0;  // bytes, of all messages

  std::shared_ptr<PeerTab> tab_;
  Duration asked_to_{0};   // if it had asked every few_every
  Duration read_from_{0};  // it waits for its turn
  std::shared_ptr<Turnstile> turnstile_;
  bool asks_ = false;                       // the message that came is a question
  Duration asked_last_ = -1h;               // when the last one before came
  std::map<uint32_t, Question> questions_;  // at most questions_max
  uint32_t unanswered_ = 0;                 // of those
  bool writing_ = false;
  uint64_t read_while_writing_ = 0;
  kj::Own<kj::PromiseFulfiller<void>> wrote_;  // someone waits in turn_to_read()
};

}  // namespace headrace
