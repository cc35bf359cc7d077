#include "tests/sim/sim_network.h"

#include <algorithm>

#include "protocol/check.h"

namespace headrace::sim {
namespace {

class SimLink final : public Link {
 public:
  explicit SimLink(std::shared_ptr<SimEnd> end) : end_(std::move(end)) {}
  ~SimLink() override { end_->close(); }
  void start(std::function<void(Bytes)> on_frame, std::function<void(Status)> on_closed) override {
    end_->start(std::move(on_frame), std::move(on_closed));
  }
  using Link::send;
  void send(Bytes frame) override { end_->send(std::move(frame)); }
  void land(size_t head, Land land) override {
    end_->head = head;
    end_->land = std::move(land);
  }
  void resume() override { end_->resume(); }
  size_t unsent() const override { return end_->unsent(); }
  void on_drained(size_t level, std::function<void()> callback) override {
    end_->drained_level = level;
    end_->above_level = end_->unsent() > level;
    end_->on_drained = std::move(callback);
  }
  void close() override { end_->close(); }
  std::string peer() const override { return end_->peer; }

 private:
  std::shared_ptr<SimEnd> end_;
};

class SimListener final : public Listener {
 public:
  SimListener(Endpoint at, std::shared_ptr<SimDoor> door) : at_(std::move(at)), door_(door) {}
  ~SimListener() override {
    if (SimWorld* world = door_->life->world) {
      auto& doors = world->wires().doors;
      const auto found = doors.find(to_string(at_));
      if (found != doors.end() && found->second == door_) doors.erase(found);
    }
    // It may be running, and may own this listener.
    door_->strand->post([door = door_] { door->on_accept = nullptr; });
  }
  Endpoint endpoint() const override { return at_; }

 private:
  Endpoint at_;
  std::shared_ptr<SimDoor> door_;
};

Status gone(const std::string& who) { return error(Errc::kDisconnected, who + " closed the link"); }

}  // namespace

void SimEnd::start(std::function<void(Bytes)> frame, std::function<void(Status)> closed) {
  CHECK(!started);
  if (!alive()) return;
  started = true;
  on_frame = std::move(frame);
  on_closed = std::move(closed);
  for (size_t i = 0; i < arrived.size(); ++i)
    strand->post([self = shared_from_this()] { self->deliver(); });
}

void SimEnd::send(Bytes frame) {
  if (!alive() || ended) return;
  const auto to = other.lock();
  if (!to || !to->life->world) return;
  const size_t frame_max = std::min(limits.frame_bytes_max, to->limits.frame_bytes_max);
  if (frame.size() > frame_max)
    return fail_soon(error(Errc::kInvalid, "frame of " + std::to_string(frame.size()) +
                                               " bytes for " + peer + ", the limit is " +
                                               std::to_string(frame_max)));
  if (!to->alive()) return;  // into the void: nobody says so
  if (to->way_bytes + frame.size() > limits.unsent_bytes_max)
    return fail_soon(error(Errc::kOverloaded, peer + " does not keep up: more than " +
                                                  std::to_string(limits.unsent_bytes_max) +
                                                  " bytes wait to be sent"));
  if (to->way_bytes + frame.size() > drained_level) above_level = true;
  to->travel(std::move(frame), std::nullopt);
}

size_t SimEnd::unsent() const {
  const auto to = other.lock();
  return to && !over ? to->way_bytes : 0;
}

void SimEnd::travel(Bytes frame, std::optional<Status> closing) {
  if (!alive() || ended) return;
  ended = closing.has_value();
  if (!ended && life->world->keep_newest) newest = frame;
  if (!ended && weathered(frame)) return;
  queue(std::move(frame), std::move(closing));
}

bool SimEnd::weathered(Bytes& frame) {
  SimWorld& world = *life->world;
  if (swallow == 0 && world.hits(weather->swallow_one_in))
    swallow = 1 + static_cast<uint32_t>(world.random().next() % weather->swallow_max);
  if (swallow > 0 || world.hits(weather->lose_one_in)) {
    if (swallow > 0) --swallow;
    told(Befell::kLost);
    return true;
  }
  if (world.hits(weather->flip_one_in) && !frame.empty()) {
    const uint64_t bit = world.random().next() % (frame.size() * 8);
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    told(Befell::kFlipped);
  }
  if (world.hits(weather->repeat_one_in)) {
    told(Befell::kRepeated);
    stray(frame, weather->late_max);
  }
  if (world.hits(weather->overtake_one_in)) {
    told(Befell::kOvertaken);
    stray(std::move(frame), weather->late_max);
    return true;
  }
  return false;
}

void SimEnd::told(Befell what) const {
  static constexpr const char* kWords[] = {"late", "lost", "repeated", "overtaken", "flipped"};
  SimWorld& world = *life->world;
  if (world.tracing())
    world.note(other_process + " -> " + life->process + ": a frame is " +
               kWords[static_cast<size_t>(what)]);
  if (world.on_weather) world.on_weather(what, other_process, life->process);
}

void SimEnd::queue(Bytes frame, std::optional<Status> closing) {
  SimWorld& world = *life->world;
  bool spiked = false;
  Instant arrives = world.now() + world.draw_link_delay(*weather, &spiked);
  if (spiked && !closing) told(Befell::kSpike);
  arrives = world.after_holds(other_process, life->process, arrives);
  if (!way.empty()) arrives = std::max(arrives, way.back().arrives);
  way_bytes += frame.size();
  way.push_back({arrives, std::move(frame), std::move(closing)});
  world.schedule(arrives, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->arrive();
  });
}

void SimEnd::stray(Bytes frame, Duration late_max) {
  SimWorld& world = *life->world;
  Instant arrives = world.now() + world.draw_link_delay({}) + world.draw(Duration{0}, late_max);
  arrives = world.after_holds(other_process, life->process, arrives);
  world.schedule(arrives, [weak = weak_from_this(), frame = std::move(frame)]() mutable {
    const auto self = weak.lock();
    if (self && self->alive()) self->come({self->life->world->now(), std::move(frame), {}});
  });
}

void SimEnd::hurry(Instant when) {
  if (!alive()) return;
  for (Item& item : way) {
    if (item.arrives <= when) continue;
    item.arrives = when;
    life->world->schedule(when, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->arrive();
    });
  }
}

// The front of the way has come; an event whose item was lost meanwhile finds a later one or none.
void SimEnd::arrive() {
  if (!alive() || way.empty() || way.front().arrives > life->world->now()) return;
  Item item = std::move(way.front());
  way.pop_front();
  way_bytes -= item.frame.size();
  if (const auto from = other.lock(); from && from->above_level)
    from->strand->post([from] { from->report_drained(); });
  come(std::move(item));
}

void SimEnd::come(Item item) {
  life->world->note_frame(*this, item.frame, item.closing ? &*item.closing : nullptr);
  arrived.push_back(std::move(item));
  if (started) strand->post([self = shared_from_this()] { self->deliver(); });
}

void SimEnd::deliver() {
  if (!alive() || arrived.empty() || waiting) return;
  if (!arrived.front().closing && !landed(arrived.front().frame)) return;
  Item item = std::move(arrived.front());
  arrived.pop_front();
  if (!item.closing) return on_frame(std::move(item.frame));
  over = true;
  release();
  if (const auto call = std::exchange(on_closed, nullptr)) call(std::move(*item.closing));
}

// False: it has to wait.
bool SimEnd::landed(Bytes& frame) {
  if (!land || frame.size() <= head) return true;
  const Landing landing = land(std::span(frame).first(head), frame.size() - head);
  waiting = landing.way == Landing::Way::kWait;
  if (landing.way != Landing::Way::kAt) return !waiting;
  std::copy(frame.begin() + static_cast<std::ptrdiff_t>(head), frame.end(), landing.at);
  frame.resize(head);
  return true;
}

// Each frame that came meanwhile had its task.
void SimEnd::resume() {
  if (!std::exchange(waiting, false) || !alive()) return;
  for (size_t i = 0; i < arrived.size(); ++i)
    strand->post([self = shared_from_this()] { self->deliver(); });
}

void SimEnd::report_drained() {
  if (!alive() || !above_level || unsent() > drained_level) return;
  above_level = false;
  if (on_drained) on_drained();
}

void SimEnd::close() {
  if (!alive()) return;
  if (const auto to = other.lock()) to->travel({}, gone(life->process));
  over = true;
  way.clear();
  way_bytes = 0;
  arrived.clear();
  release();
}

void SimEnd::fail_soon(Status why) {
  if (const auto to = other.lock()) to->travel({}, gone(life->process));
  ended = true;
  way.clear();
  way_bytes = 0;
  arrived.push_back({life->world->now(), {}, std::move(why)});
  if (started) strand->post([self = shared_from_this()] { self->deliver(); });
}

void SimEnd::cut(Instant when, Status why) {
  if (!alive()) return;
  when = life->world->after_holds(other_process, life->process, when);
  while (!way.empty() && (way.back().arrives > when || way.back().closing)) {
    way_bytes -= way.back().frame.size();
    way.pop_back();
  }
  ended = true;
  way.push_back({when, {}, std::move(why)});
  life->world->schedule(when, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->arrive();
  });
}

// The callbacks may own whatever owns this link, and one of them may be running: they go later.
void SimEnd::release() {
  strand->post([self = shared_from_this()] {
    self->on_frame = nullptr;
    self->on_closed = nullptr;
    self->on_drained = nullptr;
    self->land = nullptr;
  });
}

void SimNetwork::dial(const Endpoint& to, Duration deadline, LinkLimits limits,
                      std::shared_ptr<Strand> strand,
                      std::function<void(Result<std::unique_ptr<Link>>)> done) {
  if (!life_->alive || !life_->world) return;
  SimWorld& world = *life_->world;
  const Weather& weather = world.weather_of(to.host);
  const std::string target = world.process_at(to);
  const Instant now = world.now();
  const Instant comes =
      world.after_holds(life_->process, target, now + world.draw_link_delay(weather));
  const Duration there = comes - now;
  const Duration back =
      world.after_holds(target, life_->process, comes + world.draw_link_delay(weather)) - comes;
  const auto fail = [strand, done, to](Errc code, const std::string& why) {
    strand->post([done, status = error(code, "cannot connect to " + to_string(to) + ": " + why)] {
      done(status);
    });
  };
  if (there + back > deadline || world.wires().vanished.contains(to_string(to))) {
    world.schedule(world.now() + deadline, [fail] { fail(Errc::kDeadline, "no answer in time"); });
    return;
  }
  world.schedule(world.now() + there, [life = life_, to, limits, strand, done, fail, back] {
    if (!life->alive) return;
    SimWorld& w = *life->world;
    const auto found = w.wires().doors.find(to_string(to));
    if (found == w.wires().doors.end()) {
      w.schedule(w.now() + back, [fail] { fail(Errc::kUnavailable, "connection refused"); });
      return;
    }
    const std::shared_ptr<SimDoor> door = found->second;
    auto mine = std::make_shared<SimEnd>(life, strand, limits, to_string(to));
    auto theirs = std::make_shared<SimEnd>(door->life, door->strand, door->limits, life->process);
    mine->other = theirs;
    mine->other_process = door->life->process;
    theirs->other = mine;
    theirs->other_process = life->process;
    theirs->dialled = true;
    mine->host = theirs->host = to.host;
    mine->weather = theirs->weather = &w.weather_of(to.host);
    auto& ends = w.wires().ends;
    std::erase_if(ends, [](const auto& end) { return end.expired(); });
    ends.push_back(mine);
    ends.push_back(theirs);
    w.note(life->process + " -> " + door->life->process + ": connected");
    door->strand->post([door, link = std::make_unique<SimLink>(theirs)]() mutable {
      if (door->on_accept) door->on_accept(std::move(link));
    });
    auto link = std::make_unique<SimLink>(mine);
    w.schedule(w.now() + back, [strand, done, link = std::move(link)]() mutable {
      strand->post(
          [done, l = std::move(link)]() mutable { done(std::unique_ptr<Link>(std::move(l))); });
    });
  });
}

Result<std::unique_ptr<Listener>> SimNetwork::listen(
    const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
    std::function<void(std::unique_ptr<Link>)> on_accept) {
  const auto failed = [&](const std::string& why) {
    return error(Errc::kUnavailable, "cannot listen on " + to_string(at) + ": " + why);
  };
  if (!life_->alive || !life_->world) return failed("the process is dead");
  auto& wires = life_->world->wires();
  Endpoint real = at;
  if (at.port == 0) real.port = wires.port_next++;
  if (wires.doors.contains(to_string(real))) return failed("address already in use");
  wires.vanished.erase(to_string(real));
  auto door = std::make_shared<SimDoor>(SimDoor{life_, limits, strand, std::move(on_accept)});
  wires.doors.emplace(to_string(real), door);
  std::erase_if(wires.doors_ever, [](const auto& d) { return d.expired(); });
  wires.doors_ever.push_back(door);
  return std::unique_ptr<Listener>(std::make_unique<SimListener>(real, door));
}

void sever(SimWorld& world, const std::string& process, bool dead, bool silent,
           const std::string& with) {
  auto& wires = world.wires();
  const Instant when = world.now() + world.draw_link_delay({});
  for (const auto& weak : std::vector(wires.ends)) {
    const auto end = weak.lock();
    if (!end || end->life->process != process || end->over) continue;
    if (!with.empty() && end->other_process != with) continue;
    const auto other = end->other.lock();
    if (other && !silent)
      other->cut(when, error(Errc::kDisconnected, process + ": connection lost"));
    if (!dead) end->cut(when, error(Errc::kDisconnected, end->peer + ": connection lost"));
  }
  if (!dead) return;
  std::erase_if(wires.doors, [&](const auto& entry) {
    const bool mine = entry.second->life->process == process;
    if (mine && silent) wires.vanished.insert(entry.first);
    return mine;
  });
}

void forget(SimWorld& world, const SimLife& life) {
  for (const auto& weak : std::vector(world.wires().ends)) {
    const auto end = weak.lock();
    if (!end || end->life.get() != &life) continue;
    const auto frame = std::exchange(end->on_frame, nullptr);
    const auto closed = std::exchange(end->on_closed, nullptr);
    const auto drained = std::exchange(end->on_drained, nullptr);
    const auto land = std::exchange(end->land, nullptr);
  }
  for (const auto& weak : std::vector(world.wires().doors_ever)) {
    const auto door = weak.lock();
    if (!door || door->life.get() != &life) continue;
    const auto accept = std::exchange(door->on_accept, nullptr);
  }
}

}  // namespace headrace::sim
