#pragma once

#include "kernels/activation.h"

// Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

// The block of 32 values a, b. Where the largest magnitude is infinite or NaN the scale says so and
// q is zero, so that any product with the block is NaN. Below kQuantZero all is zero: 127 / max would
// overflow.
LANES_FN void quantize_block(Lanes a, Lanes b, QuantBlock* to) {
  const Ints magnitude = splat_int(0x7fffffff);
  // Magnitudes order like their bits, and NaN is above them all.
  const int32_t top = reduce_max(max(and_bits(bits(a), magnitude), and_bits(bits(b), magnitude)));
  float largest;
  __builtin_memcpy(&largest, &top, sizeof largest);
  const bool finite = top < 0x7f800000, zero = largest < kQuantZero;
  const Lanes inverse = splat(finite && !zero ? 127.0f / largest : 0.0f);
  Ints qa = splat_int(0), qb = splat_int(0);
  if (finite) {
    qa = round_to_int(mul(a, inverse));
    qb = round_to_int(mul(b, inverse));
  }
  store_bytes(to->q, qa);
  store_bytes(to->q + 16, qb);
  to->scale = finite && zero ? 0.0f : largest / 127.0f;
  to->sum = reduce_add(add(qa, qb));
}

}  // namespace
}  // namespace headrace::kernels
