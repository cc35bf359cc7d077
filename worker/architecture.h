#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/result.h"
#include "worker/gguf.h"

namespace headrace::worker {

// Limits on a model's shape; past one, the file is refused by the entry's name.
inline constexpr uint64_t kLayersMax = 1024;
inline constexpr uint64_t kWidthMax = 1 << 20;  // dim, ffn, heads * head_dim
inline constexpr uint64_t kHeadsMax = 1024;
inline constexpr uint64_t kHeadDimMax = 512;
inline constexpr uint64_t kVocabMax = 1 << 20;
inline constexpr uint64_t kContextMax = 1 << 20;

// A Llama-shaped model as plain numbers: RMS norms, grouped-query attention with rotary positions
// on neighbouring pairs, SwiGLU; no biases.
struct LlamaConfig {
  std::string architecture;  // as in the file
  uint32_t layers = 0;
  uint32_t dim = 0;
  uint32_t ffn = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // divides heads
  uint32_t head_dim = 0;
  uint32_t vocab = 0;  // rows of the embedding and of the output matrix
  uint32_t context = 0;
  uint32_t rotated = 0;  // leading dims of a head that rotate; even
  float eps = 0;
  bool tied = false;  // the embedding is the output matrix too
  double rope_base = 10000;
  double rope_factor = 1;            // linear scaling: positions are divided by it
  std::vector<float> rope_divisors;  // [rotated / 2] of the frequencies; empty: all 1

  uint32_t q_rows() const { return heads * head_dim; }
  uint32_t kv_rows() const { return kv_heads * head_dim; }
  uint32_t qkv_rows() const { return q_rows() + 2 * kv_rows(); }
  bool operator==(const LlamaConfig&) const = default;
};

// Reads the configuration by the table of known architectures, and checks that the file holds
// exactly the tensors that it needs, in the right shapes. What we do not compute is refused by
// name: unknown architectures, entries of this architecture with an effect (sliding windows,
// experts, other RoPE scaling, ...), tensors without a place (biases, other norms, ...).
//
// RoPE: base, linear scaling, and divisors of the frequencies from the tensor rope_freqs.weight,
// which is how llama3 scaling is stored.
Result<LlamaConfig> read_config(const GgufFile& file);

}  // namespace headrace::worker
