#include "tests/sim/seeds.h"

namespace headrace::sim {
namespace {

using coordinator::PdMode;

void draw_shape(ClusterOptions& o, SeededRandom& random) {
  const auto draw = [&](uint64_t n) { return random.next() % n; };
  switch (draw(8)) {
    case 0:
      o.prefill = o.decode = 1;
      break;
    case 1:
      o.prefill = o.decode = 0;
      o.both = 2 + static_cast<uint32_t>(draw(2));
      o.pd = draw(2) == 0 ? PdMode::kAuto : PdMode::kNever;
      break;
    case 2:
      o.prefill = o.decode = o.both = 1;
      o.pd = PdMode::kAuto;
      break;
    case 3:
      o.pd = PdMode::kAuto;
      break;
    default:
      break;
  }
  if (draw(3) == 0) o.prefixes = 1 + static_cast<uint32_t>(draw(3));
  if (draw(6) == 0) {  // few blocks, long answers: growth has to preempt
    o.engine.blocks = 44;
    o.tokens_max = 480;
  }
  if (draw(4) == 0) o.slow_one_in = 3;
  if (draw(4) == 0) o.resuming_one_in = 3;
  o.salted = draw(5) == 0;
}

void draw_weather(ClusterOptions& o, SeededRandom& random) {
  const auto draw = [&](uint64_t n) { return static_cast<uint32_t>(random.next() % n); };
  if (draw(3) == 0) {
    o.mesh.lose_one_in = draw(2) == 0 ? 100 + draw(400) : 0;
    o.mesh.repeat_one_in = draw(2) == 0 ? 20 + draw(200) : 0;
    o.mesh.overtake_one_in = draw(2) == 0 ? 50 + draw(300) : 0;
    if (draw(4) == 0) o.mesh.late_max = 3s;
  }
  if (draw(3) == 0) {
    const uint32_t one_in = 100 + draw(1500);
    switch (draw(5)) {
      case 0:
        o.kv.lose_one_in = one_in;
        break;
      case 1:
        o.kv.repeat_one_in = one_in;
        break;
      case 2:
        o.kv.overtake_one_in = one_in;
        break;
      case 3:
        o.kv.swallow_one_in = one_in;
        break;
      default:
        o.kv.flip_one_in = one_in;
    }
  }
}

void draw_ambushes(ClusterOptions& o, SeededRandom& random) {
  const auto draw = [&](uint64_t n) { return static_cast<uint32_t>(random.next() % n); };
  for (uint32_t n = draw(4); n > 0; --n) {
    Ambush a;
    a.state = State(draw(kStates));
    a.fault = Fault(draw(kFaults));
    a.nth = 1 + draw(draw(3) == 0 ? 20 : 4);
    a.peer = draw(3) == 0;
    if (impossible(a.state, a.fault).empty()) o.ambushes.push_back(a);
  }
}

}  // namespace

ClusterOptions options_of(uint64_t seed) {
  ClusterOptions o;
  o.seed = seed;
  SeededRandom random(seed * 0x9E3779B97F4A7C15ull + 1);
  const auto draw = [&](uint64_t n) { return static_cast<uint32_t>(random.next() % n); };
  draw_shape(o, random);
  o.engine.staged = seed % 2 == 1;
  o.lanes = seed % 4 == 1;
  o.kv_streams = seed % 5 == 0 ? 3 : 1;
  if (draw(12) == 0) {  // nothing goes wrong
    o.crashes_max = o.cuts_max = 0;
    o.mesh = o.kv = {};
    return o;
  }
  draw_weather(o, random);
  draw_ambushes(o, random);
  o.crashes_max = draw(4);
  o.cuts_max = draw(3);
  o.holds_max = draw(3) == 0 ? 3 : 0;
  o.freezes_max = draw(4) == 0 ? 2 : 0;
  o.slows_max = draw(6) == 0 ? 2 : 0;
  o.drains_max = draw(4) == 0 ? 3 : 0;
  if (o.lanes) o.nccl_faults_max = draw(3);
  if (draw(6) == 0) o.late_timer_one_in = 20 + draw(200);
  if (draw(8) == 0) o.faults_for = 6s;
  if (draw(8) == 0) o.deadline_min = 500ms;
  return o;
}

}  // namespace headrace::sim
