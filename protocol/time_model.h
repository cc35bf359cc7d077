#pragma once

#include <cstdint>
#include <vector>

#include "protocol/strand.h"

namespace headrace {

// Read bandwidth measured with `working_set` bytes swept by all threads, several streams each.
struct ReadPoint {
  uint64_t working_set = 0;  // bytes
  double bytes_per_second = 0;
  bool operator==(const ReadPoint&) const = default;
};

// What one worker's machine can do, as measured on it. Zero = not measured.
struct MachineLimits {
  std::vector<ReadPoint> read;  // ascending working set; at most 16 points
  double int8_ops_per_second = 0;
  double f32_flops_per_second = 0;
  double link_bytes_per_second = 0;  // towards its peers
  // Of a GPU: its products and attention are bf16 with f32 sums. Where this is known it counts, and
  // the two above do not.
  double bf16_flops_per_second = 0;
  bool operator==(const MachineLimits&) const = default;
};

// The peak of the arithmetic that a device's products use, and of what attention uses.
double product_peak(const MachineLimits& limits, bool quantized);
double attention_peak(const MachineLimits& limits);

// Bytes per second at a working set: log-linear between points, flat outside them; 0 if none.
double read_limit(const MachineLimits& limits, uint64_t working_set);

// What a model must move and compute. Sums of the operations' own costs.
struct ModelCost {
  uint64_t weight_bytes = 0;     // read once a step, whatever the batch (LM head included)
  uint64_t kv_token_bytes = 0;   // one token's K and V of all layers
  uint64_t flops_per_token = 0;  // matrix products of one token without the LM head
  uint64_t head_flops = 0;       // LM head, per row that wants logits
  uint64_t attention_flops = 0;  // per (query token, key token) pair, all layers and heads
  bool quantized = false;        // a CPU's products run on int8_ops, else on f32_flops
  bool operator==(const ModelCost&) const = default;
};

// Learnt from steps that ran: measured over predicted, and a fixed part a step.
struct Correction {
  double prefill = 1;
  double decode = 1;
  Duration overhead{0};
  bool operator==(const Correction&) const = default;
};

// One worker as the model of time sees it.
struct TimeModel {
  MachineLimits limits;
  ModelCost cost;
  Correction correction;
};

// Time to compute KV for `tokens` prompt tokens after `cached` ones: max(flops/peak, bytes/limit)
// + overhead, quadratic in attention.
Duration predict_prefill(const TimeModel& w, uint64_t tokens, uint64_t cached);
// Time of one decode step of sequences whose contexts sum to `context_tokens`.
Duration predict_decode_step(const TimeModel& w, uint64_t batch, uint64_t context_tokens);
// Time to move `bytes` of KV over the slower of the two links; 0 if neither was measured.
Duration predict_transfer(const TimeModel& from, const TimeModel& to, uint64_t bytes);

// What keeps a phase from going faster: names as on the dashboard.
enum class Wall : uint8_t { kUnknown, kDram, kCache, kCompute, kLink, kKvCapacity, kQueue, kGaps };
const char* name(Wall wall);

// Of one worker in one phase, over its last steps: which part of what the machine can do it used.
struct Saturation {
  double bandwidth = 0;  // bytes that had to move / time / read limit at the working set
  double compute = 0;    // operations / time / peak of the kind of arithmetic used
  Wall wall = Wall::kUnknown;
  bool operator==(const Saturation&) const = default;
};

// Raises the curve so that read_limit(limits, working_set) >= bytes_per_second: smaller sets are
// read at least as fast. For a limit that was seen to be passed.
void raise_read_limit(MachineLimits& limits, uint64_t working_set, double bytes_per_second);

// True where the curve lies clearly above its far end: what is read again and again stays in a
// cache. The far end of a curve that was not measured far enough may itself be a cache's.
bool fits_cache(const MachineLimits& limits, uint64_t working_set);

// What filled the time of a phase, each as a share of it, 0..1.
struct Strain {
  double bandwidth = 0;    // moving the bytes at the limit would have taken this
  double compute = 0;      // so would the operations at the peak
  double link = 0;         // nothing ran, KV was under way
  double kv_capacity = 0;  // someone waited for blocks
  double queue = 0;        // someone waited, though not for blocks
  double gaps = 0;         // between steps, while there was work
  bool cached = false;     // fits_cache() of the working set
};

// The wall with the largest share: what has to give first. A queue is behind every wall; it is
// named only where nothing else is near (so many sequences may run, no more). kUnknown if nothing
// is.
Wall nearest_wall(const Strain& strain);

// bytes / seconds / read_limit(working set); 0 when nothing was measured.
double bandwidth_saturation(const MachineLimits& limits, uint64_t bytes, uint64_t working_set,
                            double seconds);
// flops / seconds / peak of the kind of arithmetic that the model uses.
double compute_saturation(const TimeModel& w, uint64_t flops, double seconds);

}  // namespace headrace
