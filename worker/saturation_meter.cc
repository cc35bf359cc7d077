#include "worker/saturation_meter.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/ops.h"

namespace headrace::worker {
namespace {

// Zero when the limit is unknown: an unmeasured wall is no wall.
double seconds_at(double amount, double per_second) {
  return per_second > 0 ? amount / per_second : 0;
}

double share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

}  // namespace

void SaturationMeter::Slice::add(const Slice& o) {
  seconds += o.seconds;
  gaps += o.gaps;
  bytes += o.bytes;
  read_floor += o.read_floor;
  compute_floor += o.compute_floor;
  set_seconds += o.set_seconds;
  link += o.link;
  watched += o.watched;
  kv_short += o.kv_short;
  queued += o.queued;
}

SaturationMeter::SaturationMeter(TimeModel model, Role role)
    : model_(std::move(model)), role_(role) {}

void SaturationMeter::step(const StepReport& report) {
  stepped_ = true;
  working_set_ = report.working_set;
  if (!(report.seconds > 0)) return;
  Slice slice;
  slice.seconds = report.seconds;
  slice.gaps = std::max(0.0, report.gap);
  slice.set_seconds = report.seconds * static_cast<double>(report.working_set);
  const double others = attention_peak(model_.limits);
  const double products = product_peak(model_.limits, model_.cost.quantized);
  for (const kernels::OpAccount& account : report.accounts) {
    const std::string_view op = account.op;
    slice.bytes += static_cast<double>(account.cost.bytes());
    slice.compute_floor += seconds_at(static_cast<double>(account.cost.flops),
                                      kernels::is_product(op) ? products : others);
  }
  slice.read_floor = seconds_at(slice.bytes, read_limit(model_.limits, report.working_set));
  if (report.kind != StepKind::kDecode) add(prefill_, slice);
  if (report.kind != StepKind::kPrefill) add(decode_, slice);
}

void SaturationMeter::add(Phase& phase, const Slice& slice) {
  phase.idle = 0;
  if (phase.slices.empty() || phase.slices.back().time() >= kSlice) phase.slices.emplace_back();
  phase.slices.back().add(slice);
  // The oldest goes when what follows it fills the window.
  double time = 0;
  for (const Slice& s : phase.slices) time += s.time();
  while (phase.slices.size() > 1 && time - phase.slices.front().time() >= kWindow) {
    time -= phase.slices.front().time();
    phase.slices.pop_front();
  }
}

void SaturationMeter::sweep(const WorkerGauges& gauges, double elapsed) {
  watch(prefill_, gauges, elapsed);
  watch(decode_, gauges, elapsed);
  // One that sends waits for the link whenever it has nothing to compute; one that receives only
  // inside a chunk, since between two of them its peer computes.
  const bool sends = role_ == Role::kPrefill;
  const bool under_way = sends ? gauges.transfers > 0 : gauges.kv_arriving;
  if (under_way && gauges.running == 0 && !stepped_ && elapsed > 0) {
    Slice slice;
    slice.link = elapsed;
    add(sends ? prefill_ : decode_, slice);
  }
  stepped_ = false;
  judge(prefill_);
  judge(decode_);
}

void SaturationMeter::describe(WorkerGauges& gauges) const {
  gauges.prefill = prefill_.seen;
  gauges.decode = decode_.seen;
  gauges.working_set = working_set_;
  gauges.read_limit = read_limit(model_.limits, working_set_);
  gauges.int8_peak = model_.limits.int8_ops_per_second;
  gauges.f32_peak = model_.limits.f32_flops_per_second;
  gauges.bf16_peak = model_.limits.bf16_flops_per_second;
  gauges.limits_raised = limits_raised_;
}

void SaturationMeter::watch(Phase& phase, const WorkerGauges& gauges, double elapsed) {
  if (phase.slices.empty() || !(elapsed > 0)) return;
  const bool work = gauges.running > 0 || gauges.waiting > 0;
  phase.idle += elapsed;
  // A step that takes long is no idle time: there is work and none has ended.
  if (phase.idle > kIdleAfter && (stepped_ || !work)) phase = {};
  if (phase.slices.empty() || !work) return;
  Slice& last = phase.slices.back();
  last.watched += elapsed;
  if (gauges.kv_short) last.kv_short += elapsed;
  if (gauges.waiting > 0 && !gauges.kv_short) last.queued += elapsed;
}

void SaturationMeter::judge(Phase& phase) {
  if (phase.slices.empty()) return;
  Slice sum;
  for (const Slice& slice : phase.slices) sum.add(slice);
  raise(phase, sum);
  Strain strain;
  strain.bandwidth = share(sum.read_floor, sum.time());
  strain.compute = share(sum.compute_floor, sum.time());
  strain.link = share(sum.link, sum.time());
  strain.gaps = share(sum.gaps, sum.time());
  strain.kv_capacity = share(sum.kv_short, sum.watched);
  strain.queue = share(sum.queued, sum.watched);
  strain.cached = fits_cache(model_.limits, working_set_);
  const double stepping = sum.seconds + sum.gaps;
  phase.seen = {share(sum.read_floor, stepping), share(sum.compute_floor, stepping),
                nearest_wall(strain)};
}

void SaturationMeter::raise(Phase& phase, Slice& sum) {
  const double time = sum.seconds + sum.gaps;
  if (time < kRaiseAfter) return;
  const double reading = sum.read_floor / time;
  if (reading > 1) {
    const auto set = static_cast<uint64_t>(sum.set_seconds / sum.seconds);
    raise_read_limit(model_.limits, set, sum.bytes / time);
    for (Slice& slice : phase.slices) slice.read_floor /= reading;
    ++limits_raised_;
  }
  const double computing = sum.compute_floor / time;
  if (computing > 1) {
    model_.limits.int8_ops_per_second *= computing;
    model_.limits.f32_flops_per_second *= computing;
    model_.limits.bf16_flops_per_second *= computing;
    for (Slice& slice : phase.slices) slice.compute_floor /= computing;
    ++limits_raised_;
  }
}

}  // namespace headrace::worker
