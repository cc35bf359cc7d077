#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::kernels {

// kFp8 is e4m3 (OCP 8-bit floating point), kInt8 a two's complement integer; both with a scale.
enum class KvType : uint8_t { kF16, kF32, kBf16, kFp8, kInt8 };
const char* name(KvType type);  // "f16", "f32", "bf16", "fp8", "int8"
constexpr bool scaled(KvType t) { return t == KvType::kFp8 || t == KvType::kInt8; }
constexpr size_t element_bytes(KvType t) { return scaled(t) ? 1 : t == KvType::kF32 ? 4 : 2; }

// How K lies in a head's part of a block: the CPU wants one key a lane, the GPU one key a row.
enum class KvOrder : uint8_t { kLanes, kRows };

// A block holds `block_tokens` tokens of all layers, contiguous: [layer][kv_head][K | V | scales]
// with V as [block_tokens][head_dim] and K as [head_dim][block_tokens] (kLanes) or as V (kRows).
// Scales, of kFp8 and kInt8 alone: f16 [K, V][block_tokens], each the least f16 that is not below
// max |x| / 448 or / 127 of its head_dim values; value = scale * element, elements to nearest even.
struct KvLayout {
  KvType type = KvType::kF16;
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 0;  // 16, 32 or 64
  KvOrder order = KvOrder::kLanes;

  size_t row_bytes() const {  // K or V of one token and head, with its scale
    return element_bytes(type) * static_cast<size_t>(head_dim) + (scaled(type) ? 2 : 0);
  }
  size_t head_bytes() const {  // K and V of one head in one layer
    return 2 * row_bytes() * static_cast<size_t>(block_tokens);
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
// Rows of one sequence stand together, positions ascending. A negative position is no token: such
// rows fill a step up to a size; nothing is read or written for them, and what they give is zero.
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
