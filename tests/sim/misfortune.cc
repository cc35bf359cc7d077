#include "tests/sim/misfortune.h"

#include <algorithm>
#include <utility>

namespace headrace::sim {

void Misfortune::start_worker(size_t slot) {
  Slot& s = cast_.slots[slot];
  if (s.up()) return;
  worker::WorkerOptions o;
  o.name = s.name;
  o.role = s.role;
  o.token_budget = 16u << cast_.draw(4);
  o.handoff.slice_bytes = 100;
  o.handoff.streams = cast_.options.kv_streams;
  if (cast_.options.lanes) o.lanes = lanes_of(s);
  s.worker =
      sim::start_worker(cast_.world, std::move(o), cast_.options.engine, {"coordinator", 7401});
  if (cast_.options.salted) s.worker.engine->set_salt(cast_.world.random().next());
  cast_.lives.push_back(s.worker);
}

decltype(worker::WorkerOptions::lanes) Misfortune::lanes_of(Slot& slot) {
  slot.lanes = std::make_shared<std::weak_ptr<SimLanes>>();
  worker::NcclOptions o;
  o.host = 1;
  o.device = cast_.lives.size() + 1;
  return [o, fabric = cast_.nccl, made = slot.lanes](const std::shared_ptr<Strand>& strand, Random&,
                                                     uint64_t slot_bytes) mutable {
    o.slot_bytes = static_cast<uint32_t>(slot_bytes);
    auto lanes = std::make_shared<SimLanes>(fabric, strand, o);
    *made = lanes;
    return lanes;
  };
}

// For a while what a device has begun to move does not go on, or nothing can be begun, or what is
// posted is lost.
void Misfortune::spoil_lanes(size_t slot) {
  const Slot& s = cast_.slots[slot];
  const auto lanes = s.up() && s.lanes ? s.lanes->lock() : nullptr;
  if (!lanes) return;
  cast_.count("nccl faults");
  NcclFaults& faults = lanes->fake().faults;
  const uint64_t which = cast_.draw(4);
  if (which == 3) cast_.count("nccl posts lost");
  (which == 3 ? faults.lose_posts : which > 0 ? faults.hang_moves : faults.fail_moves) = true;
  cast_.world.at(10ms + cast_.draw_time(3s), [weak = std::weak_ptr(lanes)] {
    const auto again = weak.lock();
    if (!again) return;
    again->fake().faults = {};
    again->fake().nudge();
  });
}

void Misfortune::several(uint32_t most, const std::function<void()>& one) {
  for (uint64_t n = most == 0 ? 0 : cast_.draw(most + 1); n > 0; --n) {
    cast_.world.at(60ms + cast_.draw_time(cast_.options.faults_for - 60ms), [this, one] {
      if (!over_) one();
    });
  }
}

void Misfortune::script() {
  const ClusterOptions& o = cast_.options;
  cast_.world.weather("coordinator") = o.mesh;
  cast_.world.weather() = o.kv;
  cast_.world.late_timer_one_in = o.late_timer_one_in;
  cast_.world.on_weather = [this](Befell what, const std::string& from, const std::string& to) {
    static constexpr const char* kCounts[] = {"frames late", "frames lost", "frames repeated",
                                              "frames overtaken", "frames flipped"};
    cast_.count(kCounts[static_cast<size_t>(what)]);
    if (what != Befell::kSpike && what != Befell::kRepeated) return;
    const Fault fault = what == Befell::kSpike ? Fault::kDelay : Fault::kRepeat;
    cast_.report.coverage.mark(
        static_cast<StateSet>(cast_.states_at(from == "coordinator" ? to : from)), fault);
  };
  several(o.crashes_max, [this] { crash(any_slot()); });
  several(o.cuts_max, [this] {
    const size_t slot = any_slot();
    if (!cast_.slots[slot].up()) return;
    mark(cast_.slots[slot].name, Fault::kCut);
    cast_.count("cuts");
    cast_.world.break_links(*cast_.slots[slot].worker.process);
  });
  several(o.holds_max, [this] { cut(any_slot()); });
  several(o.freezes_max, [this] {
    if (cast_.draw(4) == 0) return freeze_coordinator();
    delay(any_slot());
  });
  several(o.slows_max, [this] {
    Slot& s = cast_.slots[any_slot()];
    if (!s.up()) return;
    mark(s.name, Fault::kDelay);
    cast_.count("slow nodes");
    const auto factor = static_cast<uint32_t>(2 + cast_.draw(49));
    cast_.world.slow_down(*s.worker.process, factor);
    s.worker.engine->slow_down(1 + factor / 4.0);
  });
  several(o.nccl_faults_max, [this] { spoil_lanes(any_slot()); });
  several(o.drains_max, [this] { drain(any_slot()); });
  for (const Ambush& a : o.ambushes) {
    armed_.push_back({a, 0, false});
    cast_.world.keep_newest = cast_.world.keep_newest || a.fault == Fault::kRepeat;
  }
  armed_left_ = armed_.size();
}

void Misfortune::calm() {
  over_ = true;
  armed_left_ = 0;
  cast_.world.calm();
  for (auto& [gone, back] : cast_.coordinator_freezes) back = std::min(back, cast_.world.now());
  for (size_t i = 0; i < cast_.slots.size(); ++i)
    if (cast_.slots[i].up()) cast_.slots[i].worker.engine->slow_down(1);
}

void Misfortune::mark(const std::string& process, Fault fault) {
  cast_.report.coverage.mark(cast_.states_at(process), fault);
}

void Misfortune::strike(Fault fault, size_t slot) {
  if (!cast_.slots[slot].up()) return;
  switch (fault) {
    case Fault::kCrash:
      return crash(slot);
    case Fault::kCut:
      return cut(slot);
    case Fault::kDelay:
      return delay(slot);
    case Fault::kRepeat:
      mark(cast_.slots[slot].name, Fault::kRepeat);
      cast_.count("repeats");
      return cast_.world.repeat_newest(*cast_.slots[slot].worker.process);
  }
}

void Misfortune::crash(size_t slot) {
  if (!cast_.slots[slot].up()) return;
  mark(cast_.slots[slot].name, Fault::kCrash);
  cast_.count("crashes");
  end_life(slot, cast_.draw(3) == 0 ? Death::kSilent : Death::kClosing);
}

void Misfortune::end_life(size_t slot, Death death) {
  Slot& s = cast_.slots[slot];
  const auto& counters = s.worker.node->worker().counters();
  cast_.count("preempted", counters.preempted);
  cast_.count("failed attempts", counters.failed);
  seen_.erase(s.name);
  SimProcess* process = std::exchange(s.worker, {}).process;
  for (SimWorker& life : cast_.lives)
    if (life.process == process) life.node.reset();
  cast_.world.crash(*process, death);
  cast_.world.at(50ms + cast_.draw_time(1500ms), [this, slot] { start_worker(slot); });
}

std::string Misfortune::other_than(size_t slot) {
  const size_t n = cast_.draw(cast_.slots.size() + 2);
  if (n >= cast_.slots.size() || n == slot) return "coordinator";
  return cast_.slots[n].name;
}

// Connections break, or nothing gets through for a while, perhaps one way only.
void Misfortune::cut(size_t slot) {
  Slot& s = cast_.slots[slot];
  if (!s.up()) return;
  mark(s.name, Fault::kCut);
  const std::string other = other_than(slot);
  const Duration time = 100ms + cast_.draw_time(cast_.draw(4) == 0 ? 5s : 1500ms);
  switch (cast_.draw(4)) {
    case 0:
      cast_.count("cuts");
      return cast_.world.break_links(*s.worker.process, cast_.draw(2) == 0 ? other : "");
    case 1:
      cast_.count("one-way cuts");
      return cast_.world.hold(s.name, other, time);
    case 2:
      cast_.count("one-way cuts");
      return cast_.world.hold(other, s.name, time);
    default:
      cast_.count("holds");
      cast_.world.hold(s.name, other, time);
      cast_.world.hold(other, s.name, time);
  }
}

void Misfortune::delay(size_t slot) {
  Slot& s = cast_.slots[slot];
  if (!s.up()) return;
  mark(s.name, Fault::kDelay);
  cast_.count("freezes");
  cast_.world.freeze(*s.worker.process, 20ms + cast_.draw_time(cast_.draw(3) == 0 ? 4s : 800ms));
}

void Misfortune::freeze_coordinator() {
  mark("coordinator", Fault::kDelay);
  cast_.count("coordinator freezes");
  const Duration away = 50ms + cast_.draw_time(cast_.draw(4) == 0 ? 12s : 2s);
  cast_.coordinator_freezes.emplace_back(cast_.world.now(), cast_.world.now() + away);
  cast_.world.freeze(*cast_.coordinator_process, away);
}

// As for a rolling restart: it takes nothing new, ends what it has, goes, comes back.
void Misfortune::drain(size_t slot) {
  Slot& s = cast_.slots[slot];
  if (!s.up()) return;
  cast_.count("drains");
  SimProcess* process = s.worker.process;
  const Duration grace = cast_.draw(3) == 0 ? 50ms : 2s;
  // Asked again, the shorter grace holds.
  const Instant until = cast_.world.now() + grace;
  const auto [over, first] = graces_.try_emplace(process, until);
  over->second = std::min(over->second, until);
  s.worker.node->drain(grace, [this, slot, process] {
    const SimWorker& w = cast_.slots[slot].worker;
    if (w.process != process) return;
    if (cast_.world.now() < graces_.at(process) && w.node->worker().sequences() != 0)
      cast_.problem(cast_.slots[slot].name + ": drained, yet it holds a sequence");
    cast_.world.at(0ms, [this, slot, process] {
      if (cast_.slots[slot].worker.process == process) end_life(slot, Death::kClosing);
    });
  });
}

void Misfortune::look(const std::string& process) {
  if (armed_left_ == 0) return;
  if (process == "coordinator") {
    for (const auto& [id, record] : cast_.coordinator->actor().requests()) {
      const State now = state_of(*record);
      const auto [it, fresh] = records_.try_emplace(id, now);
      if (!fresh && it->second == now) continue;
      it->second = now;
      if (now == State::kDecoding) continue;
      size_t slot = any_slot();
      if (now == State::kGranting)
        for (size_t i = 0; i < cast_.slots.size(); ++i)
          if (cast_.slots[i].up() && *cast_.slots[i].worker.id == record->attempt->decode) slot = i;
      entered(now, slot, record->attempt ? record->attempt->transfer : TransferId{});
    }
    return;
  }
  const auto slot = std::find_if(cast_.slots.begin(), cast_.slots.end(),
                                 [&](const Slot& s) { return s.name == process; });
  if (slot == cast_.slots.end() || !slot->up()) return;
  std::vector<std::pair<State, TransferId>> fresh;
  auto& seen = seen_[process];
  for (const auto& [key, s] : slot->worker.node->worker().held()) {
    const State now = state_of(s);
    const auto [it, added] = seen.try_emplace(s.transfer, now);
    if (!added && std::exchange(it->second, now) == now) continue;
    fresh.emplace_back(now, s.transfer);
  }
  for (const auto& [state, transfer] : fresh)
    entered(state, static_cast<size_t>(slot - cast_.slots.begin()), transfer);
}

void Misfortune::entered(State state, size_t slot, TransferId transfer) {
  for (Armed& a : armed_) {
    if (a.done || a.ambush.state != state || ++a.seen < a.ambush.nth) continue;
    a.done = true;
    --armed_left_;
    cast_.count("ambushes");
    // On the spot: what the task sent is on its way, what it knew is lost.
    strike(a.ambush.fault, a.ambush.peer ? peer_of(slot, transfer) : slot);
  }
}

size_t Misfortune::peer_of(size_t slot, TransferId transfer) const {
  for (size_t i = 0; i < cast_.slots.size(); ++i) {
    if (i == slot || !cast_.slots[i].up()) continue;
    for (const auto& [key, s] : cast_.slots[i].worker.node->worker().held())
      if (s.transfer == transfer) return i;
  }
  return slot;
}

}  // namespace headrace::sim
