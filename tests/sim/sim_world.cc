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
    : options_(options), random_(options.seed), now_(Instant{} + kStart) {
  weather_[""].spike_one_in = options.spike_one_in;
  weather_[""].spike_max = options.spike_max;
}

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

void SimWorld::break_links(SimProcess& process, const std::string& other) {
  note(process.name() + ": links broken" + (other.empty() ? "" : " with " + other));
  sever(*this, process.name(), false, false, other);
}

void SimWorld::freeze(SimProcess& process, Duration duration) {
  if (!process.alive()) return;
  note(process.name() + ": frozen for " + std::to_string(duration / 1ms) + " ms");
  process.life_->frozen_until = std::max(process.life_->frozen_until, now_ + duration);
  schedule(now_ + duration, [this, life = process.life_] { thaw(*life); });
}

// What was parked goes on, in its order.
void SimWorld::thaw(SimLife& life) {
  if (life.frozen_until > now_) return;
  Instant when = now_;
  for (Task& task : std::exchange(life.parked, {})) {
    schedule(when, std::move(task));
    when += 1ns;
  }
}

void SimWorld::slow_down(SimProcess& process, uint32_t factor) {
  note(process.name() + ": slow by " + std::to_string(factor));
  process.life_->slow = factor;
}

void SimWorld::hold(const std::string& from, const std::string& to, Duration duration) {
  note(from + " -> " + to + ": held for " + std::to_string(duration / 1ms) + " ms");
  Instant& until = wires_.held[{from, to}];
  until = std::max(until, now_ + duration);
}

Instant SimWorld::after_holds(const std::string& from, const std::string& to, Instant when) const {
  if (wires_.held.empty()) return when;
  const auto it = wires_.held.find({from, to});
  return it == wires_.held.end() ? when : std::max(when, it->second);
}

void SimWorld::repeat_newest(SimProcess& process) {
  CHECK(keep_newest);
  note(process.name() + ": newest frames repeated");
  for (const auto& weak : std::vector(wires_.ends)) {
    const auto end = weak.lock();
    if (!end || end->newest.empty()) continue;
    if (end->life->process != process.name() && end->other_process != process.name()) continue;
    end->stray(end->newest, options_.link_delay_max);
  }
}

Weather& SimWorld::weather(const std::string& host) { return weather_[host]; }

const Weather& SimWorld::weather_of(const std::string& host) const {
  const auto it = weather_.find(host);
  return it != weather_.end() ? it->second : weather_.at("");
}

std::string SimWorld::process_at(const Endpoint& endpoint) const {
  const auto it = wires_.doors.find(to_string(endpoint));
  return it != wires_.doors.end() ? it->second->life->process : endpoint.host;
}

void SimWorld::calm() {
  note("calm");
  for (auto& [host, weather] : weather_) weather = {};
  late_timer_one_in = 0;
  wires_.held.clear();
  const Instant soon = now_ + options_.link_delay_max;
  for (const auto& weak : std::vector(wires_.ends))
    if (const auto end = weak.lock()) end->hurry(soon);
  for (auto& process : processes_) {
    process->life_->frozen_until = std::min(process->life_->frozen_until, now_);
    thaw(*process->life_);
    process->life_->slow = 1;
  }
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

Duration SimWorld::draw_link_delay(const Weather& weather, bool* spiked) {
  const bool spike = hits(weather.spike_one_in);
  if (spiked) *spiked = spike;
  if (spike) return draw(options_.link_delay_max, weather.spike_max);
  return draw(options_.link_delay_min, options_.link_delay_max);
}

void SimWorld::note(std::string line) {
  const auto count = (now_ - Instant{} - kStart).count();
  trace_hash_ = (trace_hash_ ^ static_cast<uint64_t>(count)) * 0x100000001B3ull;
  for (const char c : line)  // FNV-1a
    trace_hash_ = (trace_hash_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  if (!tracing()) return;
  char time[32];
  std::snprintf(time, sizeof time, "%12.6f ms  ", static_cast<double>(count) / 1e6);
  trace_.push_back(time + line);
  if (trace_.size() > options_.trace_max) trace_.pop_front();
}

void SimWorld::note_frame(const SimEnd& end, const Bytes& frame, const Status* closing) {
  if (!tracing()) {
    const auto count = static_cast<uint64_t>((now_ - Instant{} - kStart).count());
    trace_hash_ = (trace_hash_ ^ count ^ frame.size()) * 0x100000001B3ull;
    return;
  }
  std::string what = closing ? "closed" : std::to_string(frame.size()) + " bytes";
  if (!closing && describe) what = describe(end.host, end.dialled, frame);
  note(end.life->process + " <- " + end.other_process + ": " + what);
}

std::string SimWorld::trace() const {
  std::string all = "seed " + std::to_string(options_.seed) + "\n";
  for (const std::string& line : trace_) all += line + "\n";
  return all;
}

}  // namespace headrace::sim
