#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "protocol/files.h"
#include "protocol/link.h"
#include "protocol/random.h"
#include "protocol/strand.h"

namespace headrace::sim {

// A cluster in one thread, on virtual time, from one seed. Each SimProcess stands for a process: it
// hands out strands, a network, random numbers and files for the constructors of real actors, and
// dies as a whole. Nothing happens but inside run_*(); equal seeds and equal calls give equal runs.
//
//   SimWorld world({.seed = 7});
//   SimProcess& p = world.spawn("decode-0");
//   auto strand = p.make_strand("worker");
//   auto worker = std::make_shared<Worker>(strand, p.network(), p.random(), ...);
//   p.own(worker);                 // the process holds it; crash() destroys it
//   world.run_for(2s);
//   world.crash(p);                // its peers learn of it a little later
//   SimProcess& again = world.spawn("decode-0");  // a new life, same files
//   REQUIRE(world.run_while([&] { return !done; }, 30s));   // else print world.trace()
struct SimOptions {
  uint64_t seed = 1;
  Duration link_delay_min = 20us;  // one way, drawn for each frame; frames of a link stay in order
  Duration link_delay_max = 2ms;
  uint32_t spike_one_in = 0;  // 0: never; else one frame in so many takes up to spike_max
  Duration spike_max = 200ms;
  Duration task_delay_max = 30us;  // from post() to the run
  Duration timer_late_max = 200us;
  size_t trace_max = 4096;  // newest entries kept; 0: none, and time is not spent on words
};

// What may happen to frames on their way; drawn for each frame, one in so many, 0: never. Messages
// of the mesh have to bear all of it. A KV channel is a stream of bytes: there each but the spike
// breaks the stream, and must be noticed.
struct Weather {
  uint32_t spike_one_in = 0;  // it takes up to spike_max, and those behind it wait
  Duration spike_max = 200ms;
  uint32_t lose_one_in = 0;
  uint32_t repeat_one_in = 0;    // it comes once more, up to late_max later
  uint32_t overtake_one_in = 0;  // it comes up to late_max later, those behind it do not wait
  Duration late_max = 50ms;
  uint32_t swallow_one_in = 0;  // it and up to swallow_max behind it are lost
  uint32_t swallow_max = 8;
  uint32_t flip_one_in = 0;  // one bit of it is another
};

// What befell a frame.
enum class Befell : uint8_t { kSpike, kLost, kRepeated, kOvertaken, kFlipped };

class SimWorld;
class SimStrand;
struct SimEnd;
struct SimDoor;

// Shared by a process and all that it handed out: what is dead or without a world does nothing.
struct SimLife {
  SimWorld* world = nullptr;
  std::string process;
  bool alive = true;
  Instant frozen_until{};      // nothing of it runs before
  std::vector<Task> parked{};  // what came meanwhile
  // Timers that fired late, or will: when they were due, and when they fire.
  std::vector<std::pair<Instant, Instant>> late_timers{};
  uint32_t slow = 1;  // its tasks take their turn so many times later
};

// A named group of strands, links, listeners, locks and objects that dies together. Owned by the
// world; stays addressable (dead) until the world ends.
class SimProcess {
 public:
  SimProcess(SimWorld& world, std::string name, std::string machine);
  ~SimProcess();
  SimProcess(const SimProcess&) = delete;

  const std::string& name() const { return life_->process; }
  const std::string& machine() const { return machine_; }
  bool alive() const { return life_->alive; }
  const auto& late_timers() const { return life_->late_timers; }
  std::shared_ptr<Strand> make_strand();
  Network& network() { return *network_; }
  Random& random() { return random_; }
  Files& files() { return *files_; }
  // Keeps it until the process ends. Destroyed in reverse order, once the process is dead: whatever
  // a destructor still posts or sends is lost.
  void own(std::shared_ptr<void> object) { owned_.push_back(std::move(object)); }

 private:
  friend class SimWorld;
  void bury();  // frees what the dead process held

  std::shared_ptr<SimLife> life_;
  std::string machine_;
  SeededRandom random_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Files> files_;
  std::vector<std::weak_ptr<SimStrand>> strands_;
  std::vector<std::shared_ptr<void>> owned_;
};

// How others learn that a process died.
enum class Death {
  kClosing,  // its connections break: seen after a link delay; frames on the way may be lost
  kSilent,   // as if the machine vanished: nobody is told, dials to it run into their deadline
};

class SimWorld final : public Clock {
 public:
  explicit SimWorld(SimOptions options = {});
  ~SimWorld() override;
  SimWorld(const SimWorld&) = delete;

  // A new process; a name may be used again once its holder is dead. Processes of one machine
  // share its files, which outlive them; a machine of its own by default.
  SimProcess& spawn(std::string name, std::string machine = "");
  // From inside a running task of that process too: nothing of it runs again, its objects are
  // destroyed by a later event.
  void crash(SimProcess& process, Death death = Death::kClosing);
  // All its connections break, or those with one other process; both sides live on.
  void break_links(SimProcess& process, const std::string& other = "");
  // Nothing of it runs for so long, as after SIGSTOP and SIGCONT: frames arrive, timers run late.
  void freeze(SimProcess& process, Duration duration);
  // Its tasks come `factor` times later than drawn. 1: as ever.
  void slow_down(SimProcess& process, uint32_t factor);
  // What goes from one process to the other waits for so long, connecting included; the other way
  // is free. By name: it also holds for who is born meanwhile.
  void hold(const std::string& from, const std::string& to, Duration duration);
  // The newest frame of each of its links comes once more, both ways (keep_newest, set before).
  void repeat_newest(SimProcess& process);
  bool keep_newest = false;
  // The weather on links that were dialled to this host; of all other hosts without one.
  Weather& weather(const std::string& host = "");
  // Timers that fire late: one in so many, up to so much.
  uint32_t late_timer_one_in = 0;
  Duration late_timer_max = 2s;
  // Ends every misfortune: no weather, nothing held, frozen or slow.
  void calm();

  // Called after each task of a strand, with its process; may crash it.
  std::function<void(const SimLife&)> after_task;
  // Called when the weather hit a frame.
  std::function<void(Befell, const std::string& from, const std::string& to)> on_weather;
  // Names a frame for the trace; else its bytes are counted. `host`: where the link was dialled to;
  // `there`: it goes to whom was dialled.
  std::function<std::string(const std::string& host, bool there, const Bytes&)> describe;

  Instant now() const override { return now_; }
  Random& random() { return random_; }
  const SimOptions& options() const { return options_; }
  // Runs `task` after `delay`, outside of any process: for the test's own script.
  void at(Duration delay, Task task);

  // Runs the next event; false when there is none.
  bool step();
  // Runs all events up to then and sets the clock to it.
  void run_until(Instant end);
  void run_for(Duration duration) { run_until(now_ + duration); }
  // Runs until nothing is left to do; false when `most` of virtual time passed first.
  bool run_until_idle(Duration most = 60s);
  // Runs while `busy()`; false when `most` of virtual time passed, or nothing is left to do, first.
  bool run_while(const std::function<bool()>& busy, Duration most = 60s);

  // Adds a line to the trace. The world itself notes processes, links, frames and closings.
  void note(std::string line);
  // The newest lines, each with its time: print them when a run fails.
  std::string trace() const;
  // Of every line ever noted: equal for equal runs.
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t events() const { return events_; }

  // Uniform in [min, max], from the seed.
  Duration draw(Duration min, Duration max);

  // --- for the parts of the simulator ---
  struct Disk {
    std::map<std::string, Bytes> files;
    std::map<std::string, std::shared_ptr<SimLife>> locks;
  };
  // What the network parts share: who listens, and every end of every link.
  struct Wires {
    std::map<std::string, std::shared_ptr<SimDoor>> doors;  // by endpoint
    std::set<std::string> vanished;                         // endpoints of the silently dead
    std::vector<std::weak_ptr<SimEnd>> ends;
    std::vector<std::weak_ptr<SimDoor>> doors_ever;
    uint16_t port_next = 20000;
    std::map<std::pair<std::string, std::string>, Instant> held;  // (from, to): until when
  };
  // `spiked`, if given, tells whether it took longer than usual.
  void thaw(SimLife& life);
  Duration draw_link_delay(const Weather& weather, bool* spiked = nullptr);
  // When something that arrives at `when` gets through, after holds.
  Instant after_holds(const std::string& from, const std::string& to, Instant when) const;
  const Weather& weather_of(const std::string& host) const;  // stays where it is
  std::string process_at(const Endpoint& endpoint) const;    // who listens there; else the host
  bool hits(uint32_t one_in) { return one_in > 0 && random_.next() % one_in == 0; }
  bool tracing() const { return options_.trace_max > 0; }
  // A frame or closing came in: noted without words when nobody reads them.
  void note_frame(const SimEnd& end, const Bytes& frame, const Status* closing);
  void schedule(Instant when, Task task);
  Disk& disk(const std::string& machine) { return disks_[machine]; }
  Wires& wires() { return wires_; }

 private:
  struct Event {
    Instant when;
    uint64_t tie;   // random: order among equals
    uint64_t rank;  // of creation: the last word
    mutable Task task;
    bool operator<(const Event& other) const;  // later first, for the heap
  };

  SimOptions options_;
  SeededRandom random_;
  Instant now_{};
  uint64_t created_ = 0;
  uint64_t events_ = 0;
  uint64_t trace_hash_ = 0;
  bool running_ = false;
  std::priority_queue<Event> queue_;
  std::deque<std::string> trace_;
  std::map<std::string, Disk> disks_;
  Wires wires_;
  std::map<std::string, Weather> weather_;
  std::vector<std::unique_ptr<SimProcess>> processes_;
};

}  // namespace headrace::sim
