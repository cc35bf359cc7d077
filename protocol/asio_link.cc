#include <array>
#include <boost/asio/buffer.hpp>
#include <cstring>
#include <deque>
#include <optional>

#include "protocol/asio_core.h"
#include "protocol/check.h"
#include "protocol/frame_intake.h"

namespace headrace {
namespace {

constexpr size_t kHeader = FrameIntake::kHeader;
constexpr uint64_t kHttp = 0x50545448;  // how "HTTP/1.1 400" reads as the length of a frame
constexpr size_t kReceiveBytes = 64u << 10;
constexpr size_t kGather = 20;            // frames handed to the system in one call
constexpr size_t kAheadBytes = 4u << 10;  // read behind what lands elsewhere
constexpr size_t kBurst = 4u << 20;       // read or written in one task

// The socket and both directions of one link. Kept alive by its pending operations and by the
// handle (AsioLink); everything happens on the strand.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<AsioStrand> strand, Socket socket, LinkLimits limits);
  ~Connection() { end_flush(); }

  void start(std::function<void(Bytes)> on_frame, std::function<void(Status)> on_closed);
  void send(Bytes head, Payload payload);
  void on_drained(size_t level, std::function<void()> callback);
  void land(size_t head, Land land);
  void resume();
  void close();    // orderly: flush, then end
  void abandon();  // at once
  size_t unsent() const { return unsent_; }
  const std::string& peer() const { return peer_; }

 private:
  enum class State {
    kOpen,
    kClosing,  // closed here: sending what is left, discarding what arrives
    kClosed,
  };
  struct Outgoing {
    std::array<std::byte, kHeader> header;
    Bytes body;
    Payload payload;
    size_t size() const { return kHeader + body.size() + payload.bytes.size(); }
  };

  void read();
  void on_read(const AsioError& failed, size_t bytes);
  void land_more();
  bool take(std::span<const std::byte> bytes);
  bool react(FrameIntake::Took took);

  void write();
  void gather();
  void write_here();
  void on_write(const AsioError& failed, size_t bytes);
  void written(size_t bytes);
  void finish_flush();
  void end_flush();

  void watch();
  void on_watch();
  void fail(Status why);
  void fail_soon(Status why);
  void shut();

  std::shared_ptr<AsioStrand> strand_;
  Socket socket_;
  const LinkLimits limits_;
  std::string peer_;
  State state_ = State::kOpen;
  bool started_ = false;
  std::optional<Status> failure_;  // met before start(), or about to be reported
  std::function<void(Bytes)> on_frame_;
  std::function<void(Status)> on_closed_;

  std::vector<std::byte> receive_;
  FrameIntake intake_;
  Bytes kept_;  // received while the intake waits
  Instant read_progress_{};

  std::deque<Outgoing> outgoing_;
  size_t front_sent_ = 0;  // bytes of outgoing_.front(), header included
  size_t unsent_ = 0;
  size_t payloads_ = 0;  // of outgoing_
  bool writing_ = false;
  bool write_failed_ = false;
  bool flushing_ = false;  // counted in core().flushing
  std::vector<asio::const_buffer> gather_;
  Instant write_progress_{};
  size_t drained_level_ = 0;
  bool above_level_ = false;
  std::function<void()> on_drained_;

  AsioTimer watch_;
  bool watching_ = false;
  bool sent_all_ = false;  // while closing: nothing left, waiting for the peer's end
};

Connection::Connection(std::shared_ptr<AsioStrand> strand, Socket socket, LinkLimits limits)
    : strand_(std::move(strand)),
      socket_(std::move(socket)),
      limits_(limits),
      intake_(limits),
      watch_(strand_->executor()) {
  AsioError ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  const auto remote = socket_.remote_endpoint(ignored);
  peer_ = to_string(Endpoint{remote.address().to_string(), remote.port()});
}

void Connection::start(std::function<void(Bytes)> on_frame, std::function<void(Status)> on_closed) {
  CHECK(!started_);
  if (state_ != State::kOpen) return;
  started_ = true;
  on_frame_ = std::move(on_frame);
  on_closed_ = std::move(on_closed);
  if (failure_) return fail_soon(*failure_);
  receive_.resize(FrameIntake::kFirstBytes);
  read();
}

// --- reading ---

void Connection::read() {
  if (intake_.waits() && state_ == State::kOpen) return;
  if (!intake_.first()) receive_.resize(kReceiveBytes);
  // Memory that is not ours is never lent to the system: it may be taken back at any time.
  if (intake_.landing()) {
    socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const AsioError& failed) {
      if (failed) return self->on_read(failed, 0);
      self->land_more();
    });
    return;
  }
  // The rest of a long body goes straight to its place.
  const auto place = intake_.inside() ? intake_.place() : std::span<std::byte>();
  const bool direct = place.size() >= kReceiveBytes && state_ == State::kOpen;
  const auto buffer = direct ? asio::buffer(place.data(), place.size())
                             : asio::buffer(receive_.data(), receive_.size());
  socket_.async_read_some(
      buffer, [self = shared_from_this(), direct](const AsioError& failed, size_t bytes) {
        if (!direct || failed || self->state_ != State::kOpen)
          return self->on_read(failed, direct ? 0 : bytes);
        self->read_progress_ = self->strand_->now();
        if (self->react(self->intake_.placed(bytes))) self->on_read(failed, 0);
      });
}

void Connection::on_read(const AsioError& failed, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (failed) {
    if (failed != asio::error::eof)
      return fail(error(Errc::kDisconnected, "link to " + peer_ + ": " + reason(failed)));
    return fail(
        error(Errc::kDisconnected,
              peer_ + (intake_.inside() ? " closed the link inside a frame" : " closed the link")));
  }
  if (state_ == State::kOpen) {
    read_progress_ = strand_->now();
    if (!take(std::span(receive_).first(bytes))) return;
    if (intake_.inside()) watch();
  }
  read();
}

// Reads what is there to its place, and a little of what follows.
void Connection::land_more() {
  for (size_t all = 0; all < kBurst && intake_.landing() && state_ == State::kOpen;) {
    const auto place = intake_.place();
    const std::array<asio::mutable_buffer, 2> to{asio::buffer(place.data(), place.size()),
                                                 asio::buffer(receive_.data(), kAheadBytes)};
    AsioError failed;
    const size_t bytes = socket_.read_some(to, failed);
    if (failed == asio::error::would_block || failed == asio::error::try_again) break;
    if (failed) return on_read(failed, 0);
    read_progress_ = strand_->now();
    all += bytes;
    const size_t landed = std::min(bytes, place.size());
    if (!react(intake_.placed(landed)) || !take(std::span(receive_).first(bytes - landed))) return;
  }
  if (state_ == State::kClosed) return;
  if (intake_.inside()) watch();
  read();
}

// Parses received bytes. False once the link is no longer to be read.
bool Connection::take(std::span<const std::byte> bytes) {
  while (!bytes.empty() && state_ == State::kOpen) {
    const FrameIntake::Took took = intake_.take(bytes);
    if (took == FrameIntake::Took::kWait) {
      kept_.assign(bytes.begin(), bytes.end());
      return true;
    }
    if (!react(took)) return false;
  }
  return state_ != State::kClosed;
}

bool Connection::react(FrameIntake::Took took) {
  if (took == FrameIntake::Took::kTooLong && intake_.first() && intake_.announced() == kHttp) {
    fail(error(Errc::kInvalid, peer_ + " speaks HTTP: that is a port for metrics, not for this"));
    return false;
  }
  if (took == FrameIntake::Took::kTooLong) {
    fail(error(Errc::kInvalid, peer_ + " announced a" + (intake_.first() ? " first" : "") +
                                   " frame of " + std::to_string(intake_.announced()) +
                                   " bytes, the limit is " + std::to_string(intake_.limit())));
    return false;
  }
  if (took == FrameIntake::Took::kFrame) {
    Bytes frame = intake_.frame();
    if (state_ == State::kOpen) on_frame_(std::move(frame));
  }
  return state_ != State::kClosed;
}

void Connection::land(size_t head, Land land) { intake_.land(head, std::move(land)); }

void Connection::resume() {
  if (!intake_.waits() || state_ != State::kOpen) return;
  strand_->post([self = shared_from_this()] {
    if (!self->intake_.waits() || self->state_ != State::kOpen) return;
    self->read_progress_ = self->strand_->now();
    if (self->intake_.ask() == FrameIntake::Took::kWait) return;
    self->watch();
    if (self->take(std::exchange(self->kept_, {}))) self->read();
  });
}

// --- writing ---

void Connection::send(Bytes head, Payload payload) {
  if (state_ != State::kOpen || failure_) return;
  const size_t size = head.size() + payload.bytes.size();
  if (size > limits_.frame_bytes_max)
    return fail_soon(error(Errc::kInvalid, "frame of " + std::to_string(size) + " bytes for " +
                                               peer_ + ", the limit is " +
                                               std::to_string(limits_.frame_bytes_max)));
  if (unsent_ + size + kHeader > limits_.unsent_bytes_max)
    return fail_soon(error(Errc::kOverloaded, peer_ + " does not keep up: more than " +
                                                  std::to_string(limits_.unsent_bytes_max) +
                                                  " bytes wait to be sent"));
  Outgoing& out = outgoing_.emplace_back();
  for (size_t i = 0; i < kHeader; ++i) out.header[i] = static_cast<std::byte>(size >> (8 * i));
  out.body = std::move(head);
  out.payload = std::move(payload);
  if (!out.payload.bytes.empty()) ++payloads_;
  unsent_ += size + kHeader;
  if (unsent_ > drained_level_) above_level_ = true;
  if (!writing_ && !write_failed_) write();
}

void Connection::write() {
  if (!writing_) write_progress_ = strand_->now();
  writing_ = true;
  watch();
  // Nor is a payload lent to the system. Later, so that what is queued by then goes with it.
  if (payloads_ > 0) return strand_->post([self = shared_from_this()] { self->write_here(); });
  gather();
  socket_.async_write_some(
      std::span<const asio::const_buffer>(gather_),
      [self = shared_from_this()](const AsioError& e, size_t n) { self->on_write(e, n); });
}

void Connection::gather() {
  gather_.clear();
  size_t skip = front_sent_;
  const auto add = [&](const std::byte* from, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size > skipped) gather_.push_back(asio::buffer(from + skipped, size - skipped));
  };
  for (size_t i = 0; i < outgoing_.size() && i < kGather; ++i) {
    const Outgoing& out = outgoing_[i];
    add(out.header.data(), kHeader);
    add(out.body.data(), out.body.size());
    add(out.payload.bytes.data(), out.payload.bytes.size());
  }
}

void Connection::write_here() {
  for (size_t all = 0; all < kBurst && !outgoing_.empty();) {
    if (state_ == State::kClosed) return;
    gather();
    AsioError failed;
    const size_t bytes = socket_.write_some(std::span<const asio::const_buffer>(gather_), failed);
    if (failed == asio::error::would_block || failed == asio::error::try_again) {
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const AsioError& e) {
        if (e) return self->on_write(e, 0);
        self->write_here();
      });
      return;
    }
    if (failed) return on_write(failed, 0);
    all += bytes;
    written(bytes);
  }
  if (state_ != State::kClosed) on_write({}, 0);
}

void Connection::on_write(const AsioError& failed, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (failed) {
    // The reason, and perhaps last words, are still to be read; reading ends the link.
    write_failed_ = true;
    writing_ = false;
    if (std::exchange(payloads_, 0) > 0) outgoing_.clear();
    if (state_ == State::kClosing) shut();
    return;
  }
  written(bytes);
  if (state_ == State::kClosed) return;
  if (!outgoing_.empty()) return write();
  writing_ = false;
  if (state_ == State::kClosing) finish_flush();
}

void Connection::written(size_t bytes) {
  write_progress_ = strand_->now();
  unsent_ -= bytes;
  front_sent_ += bytes;
  while (!outgoing_.empty() && front_sent_ >= outgoing_.front().size()) {
    front_sent_ -= outgoing_.front().size();
    if (!outgoing_.front().payload.bytes.empty()) --payloads_;
    outgoing_.pop_front();
  }
  if (above_level_ && unsent_ <= drained_level_ && state_ == State::kOpen) {
    above_level_ = false;
    if (on_drained_) on_drained_();
  }
}

void Connection::on_drained(size_t level, std::function<void()> callback) {
  drained_level_ = level;
  above_level_ = unsent_ > level;
  on_drained_ = std::move(callback);
}

// --- the end ---

void Connection::close() {
  if (state_ != State::kOpen) return;
  if (failure_ || write_failed_ || payloads_ > 0) return abandon();
  state_ = State::kClosing;
  intake_.forget_landing();
  flushing_ = true;
  strand_->core().flushing.fetch_add(1);
  // Reading goes on, or unread bytes would turn the end into a reset that destroys ours on the way.
  if (!started_ || intake_.waits()) {
    if (!started_) receive_.resize(FrameIntake::kFirstBytes);
    read();
  }
  if (outgoing_.empty()) finish_flush();
  watch();
}

void Connection::finish_flush() {
  end_flush();
  sent_all_ = true;
  write_progress_ = strand_->now();
  AsioError ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Connection::end_flush() {
  if (std::exchange(flushing_, false)) strand_->core().flushing.fetch_sub(1);
}

void Connection::abandon() {
  if (state_ != State::kClosed) shut();
}

// Ends the link and tells, unless it was closed here.
void Connection::fail(Status why) {
  if (state_ == State::kClosed) return;
  const bool tell = state_ == State::kOpen && started_;
  if (state_ == State::kOpen && !started_) {
    failure_ = std::move(why);
    return;
  }
  const auto on_closed = tell ? std::move(on_closed_) : nullptr;
  shut();
  if (on_closed) on_closed(std::move(why));
}

// The same from inside a call: the report comes later.
void Connection::fail_soon(Status why) {
  failure_ = why;
  strand_->post([self = shared_from_this(), why = std::move(why)] { self->fail(why); });
}

void Connection::shut() {
  state_ = State::kClosed;
  end_flush();
  AsioError ignored;
  socket_.close(ignored);
  watch_.cancel();
  outgoing_.clear();
  payloads_ = 0;
  intake_.forget_landing();
  unsent_ = 0;
  // The callbacks may own whatever owns this link, and one of them may be running: they go later.
  strand_->post([self = shared_from_this()] {
    self->on_frame_ = nullptr;
    self->on_closed_ = nullptr;
    self->on_drained_ = nullptr;
    self->intake_.forget();
  });
}

// --- the deadline of a begun frame, either way ---

void Connection::watch() {
  if (watching_ || state_ == State::kClosed) return;
  watching_ = true;
  watch_.expires_after(limits_.frame_deadline);
  watch_.async_wait([self = shared_from_this()](const AsioError& failed) {
    self->watching_ = false;
    if (!failed && self->state_ != State::kClosed) self->on_watch();
  });
}

void Connection::on_watch() {
  const Instant now = strand_->now();
  const bool waits_for_reading = state_ == State::kOpen && intake_.inside() && !intake_.waits();
  const bool waits_for_writing = writing_ || state_ == State::kClosing;
  Instant last = now;
  if (waits_for_reading) last = std::min(last, read_progress_);
  if (waits_for_writing) last = std::min(last, write_progress_);
  if (!waits_for_reading && !waits_for_writing) return;
  if (now - last >= limits_.frame_deadline) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limits_.frame_deadline);
    return fail(error(Errc::kDeadline, "no progress inside a frame for " +
                                           std::to_string(ms.count()) + " ms, link to " + peer_));
  }
  watching_ = true;
  watch_.expires_at(last + limits_.frame_deadline);
  watch_.async_wait([self = shared_from_this()](const AsioError& failed) {
    self->watching_ = false;
    if (!failed && self->state_ != State::kClosed) self->on_watch();
  });
}

class AsioLink final : public Link {
 public:
  AsioLink(std::shared_ptr<AsioStrand> strand, std::shared_ptr<Connection> connection)
      : strand_(std::move(strand)), connection_(std::move(connection)) {}

  ~AsioLink() override {
    if (closed_) return;  // what was closed in order goes on sending by itself
    if (strand_->here()) {
      connection_->abandon();
    } else {
      strand_->post([c = connection_] { c->abandon(); });
    }
  }
  void start(std::function<void(Bytes)> on_frame, std::function<void(Status)> on_closed) override {
    connection_->start(std::move(on_frame), std::move(on_closed));
  }
  void send(Bytes frame) override { connection_->send(std::move(frame), {}); }
  void send(Bytes head, Payload payload) override {
    connection_->send(std::move(head), std::move(payload));
  }
  void land(size_t head, Land land) override { connection_->land(head, std::move(land)); }
  void resume() override { connection_->resume(); }
  size_t unsent() const override { return connection_->unsent(); }
  void on_drained(size_t level, std::function<void()> callback) override {
    connection_->on_drained(level, std::move(callback));
  }
  void close() override {
    closed_ = true;
    connection_->close();
  }
  std::string peer() const override { return connection_->peer(); }

 private:
  std::shared_ptr<AsioStrand> strand_;
  std::shared_ptr<Connection> connection_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<Link> make_asio_link(std::shared_ptr<AsioStrand> strand, Socket socket,
                                     LinkLimits limits) {
  auto connection = std::make_shared<Connection>(strand, std::move(socket), limits);
  return std::make_unique<AsioLink>(std::move(strand), std::move(connection));
}

}  // namespace headrace
