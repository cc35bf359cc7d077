#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "protocol/messages.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

// What a step did: pure prompt work, pure decoding, or both in one.
enum class StepKind : uint8_t { kPrefill, kDecode, kMixed };
const char* name(StepKind kind);  // "prefill", "decode", "mixed"

// One engine step that has ended.
struct StepReport {
  StepKind kind{};
  double seconds = 0;  // of the device
  double gap = 0;      // since the end of the step before, while there was work; 0: there was none
  uint32_t decode_rows = 0;
  uint32_t prefill_tokens = 0;
  uint64_t working_set = 0;  // bytes that steps like this one go through: weights and KV in use
  std::span<const kernels::OpAccount> accounts;  // by operation
};

// One hand-off that has ended, on one side.
struct HandoffReport {
  bool sent = false;  // else received
  uint64_t bytes = 0;
  double wait = 0;   // seconds before the first byte: dialling, hello, computing
  double wire = 0;   // seconds in which bytes were under way or could have been
  double total = 0;  // from admission to verdict
  Status status;     // why it failed
  LaneKind lane = LaneKind::kTcp;
};

// Links over which KV comes here, see LinkMeter.
struct LinkUse {
  double share = 0;  // of the limit, 0..1
  double limit = 0;  // bytes per second, of the peers of late; 0: not measured
  bool operator==(const LinkUse&) const = default;
};

// How a worker stands, told each sweep (100 ms).
struct WorkerGauges {
  BlockCounts blocks;
  uint64_t slack_tokens = 0;  // places for tokens in partly filled blocks of running sequences
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint32_t transfers = 0;    // hand-offs under way, both sides
  bool kv_arriving = false;  // the link brings a chunk of KV: begun, not ended
  bool kv_short = false;     // someone waits because blocks are missing
  bool draining = false;
  Saturation prefill, decode;
  // Limits as they stand, see SaturationMeter; 0: not measured.
  uint64_t working_set = 0;  // bytes, of the last step
  double read_limit = 0;     // bytes per second, at that working set
  double int8_peak = 0;      // operations per second
  double f32_peak = 0;
  double bf16_peak = 0;  // of a GPU
  uint64_t limits_raised = 0;
  LinkUse links[2];  // by LaneKind
};

// Eyes on a worker; the actor tells them what it does, on its strand, and never waits for them.
// Bodies: PrometheusProbes. The default does nothing.
class Probes {
 public:
  virtual ~Probes() = default;
  virtual void step(const StepReport&) {}
  virtual void lanes() {}  // hand-offs may go over NCCL
  virtual void handoff(const HandoffReport&) {}
  virtual void gauges(const WorkerGauges&) {}
  virtual void prefix(uint32_t /*asked*/, uint32_t /*hit*/) {}  // prompt tokens of one admission
  virtual void preempted() {}
  virtual void failed(Errc /*why*/) {}   // an attempt
  virtual void refused(Errc /*why*/) {}  // a Prepare or Start
};

}  // namespace headrace::worker
