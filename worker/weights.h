#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/device.h"
#include "kernels/matrix.h"
#include "protocol/result.h"
#include "worker/model_file.h"

namespace headrace::worker {

// Matrices that share their input and lie side by side in their output: one where the stored types
// agree, else one for each part.
struct Projection {
  struct Part {
    kernels::Matrix matrix;
    uint32_t at = 0;  // first output column
  };
  std::vector<Part> parts;
  uint32_t rows = 0;  // output columns of all parts

  bool any_quantized() const;
  bool any_float() const;
};

struct LayerWeights {
  const float* attention_norm = nullptr;  // [dim]
  Projection qkv;                         // [q | k | v]
  Projection out;
  const float* ffn_norm = nullptr;  // [dim]
  Projection gate_up;               // [gate | up]; one paired part where the device pairs
  Projection down;
};

// All weights in the layout that the device streams, in one piece of its memory. Move-only.
struct Weights {
  kernels::Matrix embedding;  // [vocab, dim]
  Projection output;          // the same memory where tied
  const float* output_norm = nullptr;
  std::vector<LayerWeights> layers;
  kernels::Buffer memory;
};

// Reads each tensor once and packs it, shared out over `threads` threads (<= 0: as many as this
// process may use). `progress` gets the share done, 0..1, from one thread at a time.
// kNumeric names the tensor that holds NaN or infinity; kInvalid a file that changed meanwhile;
// kOverloaded says how much memory was wanted.
// `device`: whose memory and tiling; null: the host's, for the CPU.
Result<Weights> load_weights(const ModelFile& model, int threads,
                             const std::function<void(double)>& progress = {},
                             kernels::Device* device = nullptr);

}  // namespace headrace::worker
