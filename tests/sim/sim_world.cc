#include "tests/sim/sim_world.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "protocol/check.h"
#include "tests/sim/sim_files.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_strand.h"

namespace headrace::sim {

// Far from zero, so that no one mistakes an unset Instant for the start.
constexpr Duration kStart = 1h;

SimProcess::SimProcess(SimWorld& world, std::string name, std::string machine)
    : life_(std::make_shared<SimLife>(SimLife{&world, std::move(name), true})),
      machine_(std::move(machine)),
      random_(world.random().next()),
      network_(std::make_unique<SimNetwork>(life_)),
      files_(std::make_unique<SimFiles>(life_, machine_)) {}

SimProcess::~SimProcess() { life_->world = nullptr; }

std::shared_ptr<Strand> SimProcess::make_strand() {
  auto strand = std::make_shared<SimStrand>(life_);
  std::erase_if(strands_, [](const auto& s) { return s.expired(); });
  strands_.push_back(strand);
  return strand;
}

void SimProcess::bury() {
  while (!owned_.empty()) {
    const auto last = std::move(owned_.back());
    owned_.pop_back();
  }
  for (const auto& weak : std::exchange(strands_, {}))
    if (const auto strand = weak.lock()) strand->clear();
  forget(*life_->world, *life_);
}

bool SimWorld::Event::operator<(const Event& other) const {
  return std::tie(when, tie, rank) > std::tie(other.when, other.tie, other.rank);
}

SimWorld::SimWorld(SimOptions options)
    : options_(options), random_(options.seed), now_(Instant{} + kStart) {}

SimWorld::~SimWorld() {
  CHECK(!running_);
  for (auto& process : processes_) process->life_->alive = false;
  for (auto& process : processes_) process->bury();
  // Events may hold links, whose ends look for the world through the processes' lives.
  while (!queue_.empty()) queue_.pop();
  wires_ = {};
}

SimProcess& SimWorld::spawn(std::string name, std::string machine) {
  for (const auto& process : processes_) CHECK(!process->alive() || process->name() != name);
  if (machine.empty()) machine = name;
  note(name + ": born");
  processes_.push_back(std::make_unique<SimProcess>(*this, std::move(name), std::move(machine)));
  return *processes_.back();
}

void SimWorld::crash(SimProcess& process, Death death) {
  if (!process.alive()) return;
  note(process.name() + (death == Death::kSilent ? ": vanished" : ": crashed"));
  sever(*this, process.name(), true, death == Death::kSilent);
  process.life_->alive = false;
  if (!running_) return process.bury();
  schedule(now_, [dead = &process] { dead->bury(); });
}

void SimWorld::break_links(SimProcess& process) {
  note(process.name() + ": links broken");
  sever(*this, process.name(), false, false);
}

void SimWorld::at(Duration delay, Task task) { schedule(now_ + delay, std::move(task)); }

void SimWorld::schedule(Instant when, Task task) {
  queue_.push(Event{std::max(when, now_), random_.next(), created_++, std::move(task)});
}

bool SimWorld::step() {
  if (queue_.empty()) return false;
  CHECK(!running_);
  now_ = queue_.top().when;
  Task task = std::move(queue_.top().task);
  queue_.pop();
  ++events_;
  struct Running {
    explicit Running(bool& f) : flag(f) { flag = true; }
    ~Running() { flag = false; }  // also when a failed check leaves by exception
    bool& flag;
  } running(running_);
  task();
  return true;
}

void SimWorld::run_until(Instant end) {
  while (!queue_.empty() && queue_.top().when <= end) step();
  now_ = std::max(now_, end);
}

bool SimWorld::run_until_idle(Duration most) {
  const Instant end = now_ + most;
  while (!queue_.empty() && queue_.top().when <= end) step();
  return queue_.empty();
}

bool SimWorld::run_while(const std::function<bool()>& busy, Duration most) {
  const Instant end = now_ + most;
  while (busy()) {
    if (queue_.empty() || queue_.top().when > end) return false;
    step();
  }
  return true;
}

Duration SimWorld::draw(Duration min, Duration max) {
  const uint64_t span = max > min ? static_cast<uint64_t>((max - min).count()) : 0;
  return min + Duration{static_cast<int64_t>(random_.next() % (span + 1))};
}

Duration SimWorld::draw_link_delay() {
  if (options_.spike_one_in > 0 && random_.next() % options_.spike_one_in == 0)
    return draw(options_.link_delay_max, options_.spike_max);
  return draw(options_.link_delay_min, options_.link_delay_max);
}

void SimWorld::note(std::string line) {
  char time[32];
  const double ms = static_cast<double>((now_ - Instant{} - kStart).count()) / 1e6;
  std::snprintf(time, sizeof time, "%12.6f ms  ", ms);
  line.insert(0, time);
  for (const char c : line)  // FNV-1a
    trace_hash_ = (trace_hash_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  trace_.push_back(std::move(line));
  if (trace_.size() > options_.trace_max) trace_.pop_front();
}

std::string SimWorld::trace() const {
  std::string all = "seed " + std::to_string(options_.seed) + "\n";
  for (const std::string& line : trace_) all += line + "\n";
  return all;
}

}  // namespace headrace::sim
