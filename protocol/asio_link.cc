#include <array>
#include <boost/asio/buffer.hpp>
#include <cstring>
#include <deque>
#include <optional>

#include "protocol/asio_core.h"
#include "protocol/check.h"

namespace headrace {
namespace {

constexpr size_t kHeader = 4;
constexpr size_t kReceiveBytes = 64u << 10;
constexpr size_t kGather = 32;            // frames handed to the system in one call
constexpr size_t kFirstBytes = 4u << 10;  // reserved for a stranger before anything has come

// The socket and both directions of one link. Kept alive by its pending operations and by the
// handle (AsioLink); everything happens on the strand.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<AsioStrand> strand, Socket socket, LinkLimits limits);
  ~Connection() { end_flush(); }

  void start(std::function<void(Bytes)> on_frame, std::function<void(Status)> on_closed);
  void send(Bytes frame);
  void on_drained(size_t level, std::function<void()> callback);
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
  };

  void read();
  void on_read(const AsioError& failed, size_t bytes);
  bool take(std::span<const std::byte> bytes);
  bool take_header(std::span<const std::byte>& bytes);
  bool grow();
  bool deliver();
  bool inside_frame() const { return header_have_ > 0; }

  void write();
  void on_write(const AsioError& failed, size_t bytes);
  void consume_written(size_t bytes);
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
  std::array<std::byte, kHeader> header_{};
  size_t header_have_ = 0;
  size_t announced_ = 0;  // bytes of the frame
  bool first_ = true;     // no frame has been delivered yet
  Bytes body_;            // as far as memory was taken for it
  size_t body_have_ = 0;
  Instant read_progress_{};

  std::deque<Outgoing> outgoing_;
  size_t front_sent_ = 0;  // bytes of outgoing_.front(), header included
  size_t unsent_ = 0;
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
      watch_(strand_->executor()) {
  AsioError ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
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
  receive_.resize(kFirstBytes);
  read();
}

// --- reading ---

void Connection::read() {
  if (!first_) receive_.resize(kReceiveBytes);
  // The rest of a long body goes straight to its place.
  const bool direct = body_.size() - body_have_ >= kReceiveBytes;
  const auto buffer = direct ? asio::buffer(body_.data() + body_have_, body_.size() - body_have_)
                             : asio::buffer(receive_.data(), receive_.size());
  socket_.async_read_some(
      buffer, [self = shared_from_this(), direct](const AsioError& failed, size_t bytes) {
        if (direct && !failed) self->body_have_ += bytes;
        self->on_read(failed, direct ? 0 : bytes);
      });
}

void Connection::on_read(const AsioError& failed, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (failed) {
    if (failed != asio::error::eof)
      return fail(error(Errc::kDisconnected, "link to " + peer_ + ": " + reason(failed)));
    return fail(
        error(Errc::kDisconnected,
              peer_ + (inside_frame() ? " closed the link inside a frame" : " closed the link")));
  }
  if (state_ == State::kOpen) {
    read_progress_ = strand_->now();
    if (bytes == 0 && body_have_ == body_.size() && !grow() && !deliver()) return;
    if (!take(std::span(receive_).first(bytes))) return;
    if (inside_frame()) watch();
  }
  read();
}

// Parses received bytes. False once the link is no longer to be read.
bool Connection::take(std::span<const std::byte> bytes) {
  while (!bytes.empty() && state_ == State::kOpen) {
    if (header_have_ < kHeader) {
      if (!take_header(bytes)) return false;
      continue;
    }
    const size_t n = std::min(bytes.size(), body_.size() - body_have_);
    std::memcpy(body_.data() + body_have_, bytes.data(), n);
    body_have_ += n;
    bytes = bytes.subspan(n);
    if (body_have_ == body_.size() && !grow() && !deliver()) return false;
  }
  return state_ != State::kClosed;
}

bool Connection::take_header(std::span<const std::byte>& bytes) {
  const size_t n = std::min(bytes.size(), kHeader - header_have_);
  std::memcpy(header_.data() + header_have_, bytes.data(), n);
  header_have_ += n;
  bytes = bytes.subspan(n);
  if (header_have_ < kHeader) return true;
  size_t size = 0;
  for (size_t i = 0; i < kHeader; ++i) size |= static_cast<size_t>(header_[i]) << (8 * i);
  const size_t most = first_ ? std::min(limits_.first_frame_bytes_max, limits_.frame_bytes_max)
                             : limits_.frame_bytes_max;
  if (size > most) {
    fail(error(Errc::kInvalid, peer_ + " announced a" + (first_ ? " first" : "") + " frame of " +
                                   std::to_string(size) + " bytes, the limit is " +
                                   std::to_string(most)));
    return false;
  }
  announced_ = size;
  body_ = Bytes(first_ ? std::min(size, kFirstBytes) : size);
  body_have_ = 0;
  return size > 0 || deliver();
}

// More memory for a frame that has filled what it had; false if it is whole.
bool Connection::grow() {
  if (body_.size() == announced_) return false;
  body_.resize(std::min(announced_, 2 * body_.size()));
  return true;
}

bool Connection::deliver() {
  first_ = false;
  header_have_ = 0;
  body_have_ = 0;
  Bytes frame = std::exchange(body_, {});
  if (state_ == State::kOpen) on_frame_(std::move(frame));
  return state_ != State::kClosed;
}

// --- writing ---

void Connection::send(Bytes frame) {
  if (state_ != State::kOpen || failure_) return;
  if (frame.size() > limits_.frame_bytes_max)
    return fail_soon(error(Errc::kInvalid, "frame of " + std::to_string(frame.size()) +
                                               " bytes for " + peer_ + ", the limit is " +
                                               std::to_string(limits_.frame_bytes_max)));
  const size_t size = frame.size();
  if (unsent_ + size + kHeader > limits_.unsent_bytes_max)
    return fail_soon(error(Errc::kOverloaded, peer_ + " does not keep up: more than " +
                                                  std::to_string(limits_.unsent_bytes_max) +
                                                  " bytes wait to be sent"));
  Outgoing& out = outgoing_.emplace_back();
  for (size_t i = 0; i < kHeader; ++i) out.header[i] = static_cast<std::byte>(size >> (8 * i));
  out.body = std::move(frame);
  unsent_ += size + kHeader;
  if (unsent_ > drained_level_) above_level_ = true;
  if (!writing_ && !write_failed_) write();
}

void Connection::write() {
  if (!writing_) write_progress_ = strand_->now();
  writing_ = true;
  gather_.clear();
  size_t skip = front_sent_;
  for (size_t i = 0; i < outgoing_.size() && i < kGather; ++i) {
    const Outgoing& out = outgoing_[i];
    if (skip < kHeader) gather_.push_back(asio::buffer(out.header.data() + skip, kHeader - skip));
    const size_t body_skip = skip > kHeader ? skip - kHeader : 0;
    gather_.push_back(asio::buffer(out.body.data() + body_skip, out.body.size() - body_skip));
    skip = 0;
  }
  watch();
  socket_.async_write_some(
      std::span<const asio::const_buffer>(gather_),
      [self = shared_from_this()](const AsioError& e, size_t n) { self->on_write(e, n); });
}

void Connection::on_write(const AsioError& failed, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (failed) {
    // The reason, and perhaps last words, are still to be read; reading ends the link.
    write_failed_ = true;
    writing_ = false;
    if (state_ == State::kClosing) shut();
    return;
  }
  write_progress_ = strand_->now();
  consume_written(bytes);
  if (!outgoing_.empty()) {
    write();
  } else {
    writing_ = false;
    if (state_ == State::kClosing) finish_flush();
  }
  if (above_level_ && unsent_ <= drained_level_ && state_ == State::kOpen) {
    above_level_ = false;
    if (on_drained_) on_drained_();
  }
}

void Connection::consume_written(size_t bytes) {
  unsent_ -= bytes;
  front_sent_ += bytes;
  while (!outgoing_.empty() && front_sent_ >= kHeader + outgoing_.front().body.size()) {
    front_sent_ -= kHeader + outgoing_.front().body.size();
    outgoing_.pop_front();
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
  if (failure_ || write_failed_) return abandon();
  state_ = State::kClosing;
  flushing_ = true;
  strand_->core().flushing.fetch_add(1);
  // Reading goes on, or unread bytes would turn the end into a reset that destroys ours on the way.
  if (!started_) {
    receive_.resize(kFirstBytes);
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
  unsent_ = 0;
  // The callbacks may own whatever owns this link, and one of them may be running: they go later.
  strand_->post([self = shared_from_this()] {
    self->on_frame_ = nullptr;
    self->on_closed_ = nullptr;
    self->on_drained_ = nullptr;
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
  const bool waits_for_reading = state_ == State::kOpen && inside_frame();
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
  void send(Bytes frame) override { connection_->send(std::move(frame)); }
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
