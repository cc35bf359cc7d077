#pragma once

#include <cstdint>

namespace headrace::kernels {

// What an operation must move and compute, whoever executes it. `bytes` counts each byte once that
// has to cross the memory bus when nothing is cached: weights and KV in their stored form, plus
// activations in and out. Kinds as on the dashboard.
struct Cost {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t activation_bytes = 0;
  uint64_t flops = 0;  // a multiply-add is two; integer operations count alike

  uint64_t bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
  Cost& operator+=(const Cost& o) {
    weight_bytes += o.weight_bytes;
    kv_bytes += o.kv_bytes;
    activation_bytes += o.activation_bytes;
    flops += o.flops;
    return *this;
  }
  bool operator==(const Cost&) const = default;
};

}  // namespace headrace::kernels
