#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "protocol/link.h"
#include "tests/sim/sim_world.h"

namespace headrace::sim {

// A listening endpoint.
struct SimDoor {
  std::shared_ptr<SimLife> life;
  LinkLimits limits;
  std::shared_ptr<Strand> strand;
  std::function<void(std::unique_ptr<Link>)> on_accept;
};

// One end of a link. What travels towards it waits in `way` until it arrives, then in `arrived`
// until its strand takes it.
struct SimEnd : std::enable_shared_from_this<SimEnd> {
  struct Item {
    Instant arrives;
    Bytes frame;
    std::optional<Status> closing;  // the last item: the other end is gone
  };

  SimEnd(std::shared_ptr<SimLife> l, std::shared_ptr<Strand> s, LinkLimits m, std::string p)
      : life(std::move(l)), strand(std::move(s)), limits(m), peer(std::move(p)) {}

  bool alive() const { return life->alive && life->world && !over; }
  void start(std::function<void(Bytes)> frame, std::function<void(Status)> closed);
  void send(Bytes frame);
  void close();
  void fail_soon(Status why);
  void travel(Bytes frame, std::optional<Status> closing);
  bool weathered(Bytes& frame);  // true: the frame does not go the usual way
  void told(Befell what) const;
  void queue(Bytes frame, std::optional<Status> closing);
  // Comes beside the others, up to `late_max` later than they would.
  void stray(Bytes frame, Duration late_max);
  void hurry(Instant when);  // what is on its way comes then, if not before
  void arrive();
  void come(Item item);
  void deliver();
  bool landed(Bytes& frame);
  void resume();
  void report_drained();
  void release();
  // The connection broke: what has not arrived by `when` is lost, the closing arrives then.
  void cut(Instant when, Status why);
  size_t unsent() const;

  const std::shared_ptr<SimLife> life;
  const std::shared_ptr<Strand> strand;
  const LinkLimits limits;
  const std::string peer;
  std::weak_ptr<SimEnd> other;
  std::string other_process;
  std::string host;      // that was dialled
  bool dialled = false;  // this end was
  const Weather* weather = nullptr;
  uint32_t swallow = 0;  // so many frames more are lost
  Bytes newest;          // the last frame sent here, where the world keeps it
  bool started = false;
  bool over = false;   // closed here, or reported as closed
  bool ended = false;  // a closing is on the way or has arrived
  std::deque<Item> way;
  size_t way_bytes = 0;
  std::deque<Item> arrived;
  std::function<void(Bytes)> on_frame;
  std::function<void(Status)> on_closed;
  std::function<void()> on_drained;
  size_t drained_level = 0;
  bool above_level = false;
  size_t head = 0;
  Land land;
  bool waiting = false;  // for resume()
};

// The Network of one simulated process. Frames of a link stay in order, each takes a drawn time; a
// dial takes two. Both ends of a link hold only weak references to each other.
class SimNetwork final : public Network {
 public:
  explicit SimNetwork(std::shared_ptr<SimLife> life) : life_(std::move(life)) {}
  void dial(const Endpoint& to, Duration deadline, LinkLimits limits,
            std::shared_ptr<Strand> strand,
            std::function<void(Result<std::unique_ptr<Link>>)> done) override;
  Result<std::unique_ptr<Listener>> listen(
      const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
      std::function<void(std::unique_ptr<Link>)> on_accept) override;

 private:
  std::shared_ptr<SimLife> life_;
};

// Ends every link of a process, or those with one other; `silent`: its peers are told nothing, its
// endpoints answer nobody.
void sever(SimWorld& world, const std::string& process, bool dead, bool silent,
           const std::string& with = "");

// Drops the callbacks of a dead process, which may hold its actors.
void forget(SimWorld& world, const SimLife& life);

}  // namespace headrace::sim
