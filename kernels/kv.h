#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::kernels {

enum class KvType : uint8_t { kF16, kF32 };
constexpr size_t element_bytes(KvType t) { return t == KvType::kF16 ? 2 : 4; }

// A block holds `block_tokens` tokens of all layers, contiguous: [layer][kv_head][K | V] with
// K as [head_dim][block_tokens] (key = lane) and V as [block_tokens][head_dim].
struct KvLayout {
  KvType type = KvType::kF16;
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 0;  // 16, 32 or 64

  size_t head_bytes() const {  // K and V of one head in one layer
    return 2 * element_bytes(type) * static_cast<size_t>(head_dim) *
           static_cast<size_t>(block_tokens);
  }
  size_t layer_bytes() const { return head_bytes() * static_cast<size_t>(kv_heads); }
  size_t block_bytes() const { return layer_bytes() * static_cast<size_t>(layers); }
  size_t token_bytes() const { return block_bytes() / static_cast<size_t>(block_tokens); }
  bool operator==(const KvLayout&) const = default;
};

// All blocks of a worker: block b begins at base + b * block_bytes().
struct KvPool {
  KvLayout layout;
  std::byte* base = nullptr;

  std::byte* head(uint32_t block, int32_t layer, int32_t kv_head) const {
    return base + block * layout.block_bytes() + static_cast<size_t>(layer) * layout.layer_bytes() +
           static_cast<size_t>(kv_head) * layout.head_bytes();
  }
};

// One row of a step: the token at `position` of a sequence whose KV lies in blocks[position / T].
// Rows of one sequence stand together, positions ascending.
struct StepRow {
  const uint32_t* blocks = nullptr;  // block table of its sequence, long enough for `position`
  int32_t position = 0;
};

// Keys of one attention slice; slices lie at absolute multiples of it (determinism rule b).
#ifndef HEADRACE_ATTENTION_SLICE
#define HEADRACE_ATTENTION_SLICE 256
#endif
constexpr int32_t kAttentionSlice = HEADRACE_ATTENTION_SLICE;
static_assert(kAttentionSlice % 64 == 0);

}  // namespace headrace::kernels
