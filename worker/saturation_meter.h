#pragma once

#include <cstdint>
#include <deque>

#include "protocol/messages.h"
#include "protocol/time_model.h"
#include "worker/probes.h"

namespace headrace::worker {

// How near one worker is to each of its walls, per phase, over its last seconds with steps: what
// Beat.prefill, Beat.decode and WorkerGauges carry. A pure value on the worker's strand.
//
// Bytes are those that the steps' operations had to move (weights, KV, activations:
// kernels/cost.h), the limit is read_limit() at the steps' working set, time is that of the steps
// and of the gaps between them while there was work. A mixed step counts in full for both phases:
// "in the steps that did this, how much of the machine was used".
//
// The link is a wall as the other things are: by the share of the phase's time that it took, which
// is time with nothing to compute while it moved KV. To decoding that counts on the worker that
// receives: a decoder starves for KV at the wall "link", or, if its peers are late with computing,
// at none. With other answers to go on with it does not starve.
//
// A measured limit that is passed was no limit (a shared machine was busy when it was measured):
// once kRaiseAfter of steps lie above it, it is raised to what was seen, and counted. Shorter
// excesses are shown as 1, so no saturation ever passes 1.
class SaturationMeter {
 public:
  static constexpr double kWindow = 3.0;      // seconds of steps remembered, per phase
  static constexpr double kSlice = 0.1;       // they are kept in slices of at least this
  static constexpr double kRaiseAfter = 0.5;  // seconds
  // Without steps nothing is saturated any more. Not less: so each scrape of the usual 5 s sees
  // what ran since the one before.
  static constexpr double kIdleAfter = 5.0;

  SaturationMeter(TimeModel model, Role role);

  // One step that ended. Its accounts are read now, not kept.
  void step(const StepReport& report);
  // Each sweep, before the gauges are told: who waited for what in the `elapsed` seconds since the
  // sweep before. Reads running, waiting, transfers, kv_arriving and kv_short.
  void sweep(const WorkerGauges& gauges, double elapsed);

  Saturation prefill() const { return prefill_.seen; }
  Saturation decode() const { return decode_.seen; }
  // Both, and the limits as they stand, into what the probes are told.
  void describe(WorkerGauges& gauges) const;
  // What counts as the limits now, and how often one was raised.
  const MachineLimits& limits() const { return model_.limits; }
  uint64_t limits_raised() const { return limits_raised_; }
  // Of the last steps of any kind; 0 before the first.
  uint64_t working_set() const { return working_set_; }

 private:
  // Sums over some steps, and over the sweeps meanwhile.
  struct Slice {
    double seconds = 0;  // of steps
    double gaps = 0;
    double bytes = 0;
    double read_floor = 0;     // seconds that moving the bytes takes at the limit
    double compute_floor = 0;  // seconds that the operations take at the peak
    double set_seconds = 0;    // working set x seconds
    double link = 0;           // nothing to compute, KV under way to or from a peer
    double watched = 0;        // seconds of sweeps with sequences
    double kv_short = 0;       // of them
    double queued = 0;         // of them
    double time() const { return seconds + gaps + link; }
    void add(const Slice& o);
  };
  struct Phase {
    std::deque<Slice> slices;
    double idle = 0;  // seconds since the last step
    Saturation seen;
  };

  void add(Phase& phase, const Slice& slice);
  void judge(Phase& phase);
  void raise(Phase& phase, Slice& sum);
  void watch(Phase& phase, const WorkerGauges& gauges, double elapsed);

  TimeModel model_;
  Role role_;
  Phase prefill_, decode_;
  bool stepped_ = false;  // since the sweep before
  uint64_t working_set_ = 0;
  uint64_t limits_raised_ = 0;
};

}  // namespace headrace::worker
