#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv.h"

namespace headrace::kernels {

// One token's K or V in a head's part of a block (KvPool::head), element by element and slowly: how
// references and tests read and write any KvType and KvOrder.

enum class KvHalf : uint8_t { kKey, kValue };

// OCP 8-bit floating point e4m3: no infinities, 0x7f and 0xff are NaN. To it: to nearest even;
// what lies beyond 448 becomes 448, a NaN stays one.
float e4m3_to_float(uint8_t e);
uint8_t float_to_e4m3(float f);

// The f16 scale of a row whose largest magnitude is `largest`: see kernels/kv.h. What has no finite
// scale, NaN included, gets NaN: all that is computed with such a row is NaN, and sampling says so.
uint16_t kv_scale(KvType type, float largest);

// Element `d` of token `slot` of the block, scale included.
float kv_element(const KvLayout& layout, const std::byte* head, KvHalf half, int32_t slot,
                 int32_t d);
// The head_dim values of token `slot`.
void get_kv_row(const KvLayout& layout, const std::byte* head, KvHalf half, int32_t slot,
                double* values);
// Writes the head_dim values of token `slot`, with their scale.
void put_kv_row(const KvLayout& layout, std::byte* head, KvHalf half, int32_t slot,
                const float* values);

}  // namespace headrace::kernels
