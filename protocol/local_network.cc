#include "protocol/local_network.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "protocol/check.h"

namespace headrace {
namespace {

// One end of a link. `inbox` and everything under `mutex` is shared between the two strands;
// the callbacks belong to this end's strand alone.
struct End : std::enable_shared_from_this<End> {
  End(std::shared_ptr<Strand> s, LinkLimits l, std::string p)
      : strand(std::move(s)), limits(l), peer(std::move(p)) {}

  void start(std::function<void(Bytes)> frame, std::function<void(Status)> closed_call);
  void send(Bytes frame);
  void leave(const Status& reason_for_peer);  // ends both; the peer is told
  void shut(const Status& why);
  void fail_soon(Status why);
  void push(Bytes frame);
  void hang_up(Status why);
  void wake();
  void drain();
  bool take(Bytes& frame);
  void report_drained();
  void release();

  const std::shared_ptr<Strand> strand;
  const LinkLimits limits;
  const std::string peer;

  // On the strand.
  bool started = false;
  bool over = false;  // closed here, or reported as closed
  std::function<void(Bytes)> on_frame;
  std::function<void(Status)> on_closed;
  std::function<void()> on_drained;
  size_t drained_level = 0;
  bool above_level = false;
  size_t head = 0;
  Land land;
  bool waits = false;  // for resume()

  std::mutex mutex;
  std::shared_ptr<End> other;  // reset by whoever ends the link
  std::deque<Bytes> inbox;     // for this end to read
  size_t inbox_bytes = 0;      // = what the other end calls unsent
  bool awake = false;          // a drain is posted
  std::optional<Status> ending;
};

std::shared_ptr<End> other_of(End& end) {
  std::lock_guard lock(end.mutex);
  return end.other;
}

void End::start(std::function<void(Bytes)> frame, std::function<void(Status)> closed_call) {
  CHECK(!started);
  if (over) return;
  started = true;
  on_frame = std::move(frame);
  on_closed = std::move(closed_call);
  wake();
}

void End::send(Bytes frame) {
  const auto to = over ? nullptr : other_of(*this);
  if (!to) return;
  if (frame.size() > limits.frame_bytes_max || frame.size() > to->limits.frame_bytes_max)
    return fail_soon(error(
        Errc::kInvalid,
        "frame of " + std::to_string(frame.size()) + " bytes for " + peer + ", the limit is " +
            std::to_string(std::min(limits.frame_bytes_max, to->limits.frame_bytes_max))));
  size_t waiting = 0;
  {
    std::lock_guard lock(to->mutex);
    waiting = to->inbox_bytes + frame.size();
  }
  if (waiting > limits.unsent_bytes_max)
    return fail_soon(error(Errc::kOverloaded, peer + " does not keep up: more than " +
                                                  std::to_string(limits.unsent_bytes_max) +
                                                  " bytes wait to be sent"));
  if (waiting > drained_level) above_level = true;
  to->push(std::move(frame));
}

void End::push(Bytes frame) {
  {
    std::lock_guard lock(mutex);
    inbox_bytes += frame.size();
    inbox.push_back(std::move(frame));
  }
  wake();
}

void End::hang_up(Status why) {
  {
    std::lock_guard lock(mutex);
    other = nullptr;
    if (!ending) ending = std::move(why);
  }
  wake();
}

void End::wake() {
  {
    std::lock_guard lock(mutex);
    if (std::exchange(awake, true)) return;
  }
  strand->post([self = shared_from_this()] { self->drain(); });
}

// Delivers what has come; then, once all is delivered, the closing.
void End::drain() {
  {
    std::lock_guard lock(mutex);
    awake = false;
  }
  if (!started && !over) return;
  for (Bytes frame; !over && take(frame);) on_frame(std::move(frame));
  if (waits) return;
  std::optional<Status> why;
  {
    std::lock_guard lock(mutex);
    if (inbox.empty()) why = std::exchange(ending, std::nullopt);
  }
  if (!why || over) return;
  over = true;
  release();
  if (const auto call = std::exchange(on_closed, nullptr)) call(std::move(*why));
}

// The next frame, landed if it is one of those.
bool End::take(Bytes& frame) {
  std::unique_lock lock(mutex);
  if (waits || inbox.empty()) return false;
  const Bytes& front = inbox.front();  // nobody else takes it, and a deque keeps it in its place
  const size_t size = front.size();
  Landing landing;
  if (land && size > head) {
    lock.unlock();
    landing = land(std::span(front).first(head), size - head);
    waits = landing.way == Landing::Way::kWait;
    if (waits) return false;
    if (landing.way == Landing::Way::kAt)
      std::copy(front.begin() + static_cast<ptrdiff_t>(head), front.end(), landing.at);
    lock.lock();
  }
  frame = std::move(inbox.front());
  inbox.pop_front();
  inbox_bytes -= size;
  const std::shared_ptr<End> sender = other;
  lock.unlock();
  if (landing.way == Landing::Way::kAt) frame.resize(head);
  if (sender) sender->strand->post([sender] { sender->report_drained(); });
  return true;
}

void End::report_drained() {
  const auto to = other_of(*this);
  if (over || !above_level || !to) return;
  {
    std::lock_guard lock(to->mutex);
    if (to->inbox_bytes > drained_level) return;
  }
  above_level = false;
  if (on_drained) on_drained();
}

void End::leave(const Status& reason_for_peer) {
  if (std::exchange(over, true)) return;
  std::shared_ptr<End> to;
  {
    std::lock_guard lock(mutex);
    to = std::exchange(other, nullptr);
    inbox.clear();
    inbox_bytes = 0;
  }
  if (to) to->hang_up(reason_for_peer);
  release();
}

// Our own limit was reached: both ends are told, this one from a later task.
void End::fail_soon(Status why) {
  std::shared_ptr<End> to;
  {
    std::lock_guard lock(mutex);
    to = std::exchange(other, nullptr);
    if (!ending) ending = std::move(why);
  }
  if (to) to->hang_up(error(Errc::kDisconnected, to->peer + " closed the link"));
  wake();
}

// The callbacks may own whatever owns this link, and one of them may be running: they go later.
void End::release() {
  strand->post([self = shared_from_this()] {
    self->on_frame = nullptr;
    self->on_closed = nullptr;
    self->on_drained = nullptr;
    self->land = nullptr;
  });
}

class LocalLink final : public Link {
 public:
  explicit LocalLink(std::shared_ptr<End> end) : end_(std::move(end)) {}
  ~LocalLink() override { close(); }
  void start(std::function<void(Bytes)> on_frame, std::function<void(Status)> on_closed) override {
    end_->start(std::move(on_frame), std::move(on_closed));
  }
  using Link::send;
  void send(Bytes frame) override { end_->send(std::move(frame)); }
  void land(size_t head, Land land) override {
    end_->head = head;
    end_->land = std::move(land);
  }
  void resume() override {
    if (std::exchange(end_->waits, false)) end_->wake();
  }
  size_t unsent() const override {
    const auto to = end_->over ? nullptr : other_of(*end_);
    if (!to) return 0;
    std::lock_guard lock(to->mutex);
    return to->inbox_bytes;
  }
  void on_drained(size_t level, std::function<void()> callback) override {
    end_->drained_level = level;
    end_->above_level = unsent() > level;
    end_->on_drained = std::move(callback);
  }
  void close() override {
    const auto to = other_of(*end_);
    end_->leave(error(Errc::kDisconnected, (to ? to->peer : "") + " closed the link"));
  }
  std::string peer() const override { return end_->peer; }

 private:
  std::shared_ptr<End> end_;
};

}  // namespace

namespace {

// A listening endpoint.
struct Door {
  LinkLimits limits;
  std::shared_ptr<Strand> strand;
  std::function<void(std::unique_ptr<Link>)> on_accept;  // used on the strand only
};

}  // namespace

struct LocalHub {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Door>> doors;
  uint16_t port_next = 1;
  uint64_t dials = 0;
};

namespace {

class LocalListener final : public Listener {
 public:
  LocalListener(Endpoint at, std::shared_ptr<LocalHub> hub) : at_(std::move(at)), hub_(hub) {}
  ~LocalListener() override {
    std::shared_ptr<Door> door;
    {
      std::lock_guard lock(hub_->mutex);
      const auto found = hub_->doors.find(to_string(at_));
      door = std::move(found->second);
      hub_->doors.erase(found);
    }
    // It may be running, and may own this listener.
    door->strand->post([door] { door->on_accept = nullptr; });
  }
  Endpoint endpoint() const override { return at_; }

 private:
  Endpoint at_;
  std::shared_ptr<LocalHub> hub_;
};

}  // namespace

LocalNetwork::LocalNetwork() : hub_(std::make_shared<LocalHub>()) {}
LocalNetwork::~LocalNetwork() = default;

void LocalNetwork::dial(const Endpoint& to, Duration, LinkLimits limits,
                        std::shared_ptr<Strand> strand,
                        std::function<void(Result<std::unique_ptr<Link>>)> done) {
  std::shared_ptr<Door> door;
  std::string caller;
  {
    std::lock_guard lock(hub_->mutex);
    const auto found = hub_->doors.find(to_string(to));
    if (found != hub_->doors.end()) door = found->second;
    caller = "local-" + std::to_string(++hub_->dials);
  }
  if (!door) {
    strand->post([done = std::move(done), to] {
      done(
          error(Errc::kUnavailable, "cannot connect to " + to_string(to) + ": connection refused"));
    });
    return;
  }
  auto mine = std::make_shared<End>(strand, limits, to_string(to));
  auto theirs = std::make_shared<End>(door->strand, door->limits, caller);
  mine->other = theirs;
  theirs->other = mine;
  door->strand->post([door, link = std::make_unique<LocalLink>(theirs)]() mutable {
    if (door->on_accept) door->on_accept(std::move(link));
  });
  strand->post([done = std::move(done), link = std::make_unique<LocalLink>(mine)]() mutable {
    done(std::unique_ptr<Link>(std::move(link)));
  });
}

Result<std::unique_ptr<Listener>> LocalNetwork::listen(
    const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
    std::function<void(std::unique_ptr<Link>)> on_accept) {
  std::lock_guard lock(hub_->mutex);
  Endpoint real = at;
  for (int tries = 0; at.port == 0 && tries < 65535; ++tries) {
    real.port = hub_->port_next++;
    if (hub_->port_next == 0) hub_->port_next = 1;
    if (!hub_->doors.contains(to_string(real))) break;
  }
  auto door = std::make_shared<Door>(Door{limits, std::move(strand), std::move(on_accept)});
  if (!hub_->doors.try_emplace(to_string(real), std::move(door)).second)
    return error(Errc::kUnavailable,
                 "cannot listen on " + to_string(at) + ": address already in use");
  return std::unique_ptr<Listener>(std::make_unique<LocalListener>(real, hub_));
}

}  // namespace headrace
