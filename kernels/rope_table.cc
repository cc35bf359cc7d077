#include "kernels/rope_table.h"

#include "kernels/check.h"
#include "kernels/math.h"

namespace headrace::kernels {

void build_rope(int32_t context, int32_t rotated, double base, double linear_factor,
                const float* freq_factors, float* out) {
  KERNELS_CHECK(rotated % 2 == 0 && base > 0 && linear_factor > 0);
  const int32_t pairs = rotated / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    double f = pow_exact(base, -2.0 * i / rotated) / linear_factor;
    if (freq_factors) f /= freq_factors[i];
    KERNELS_CHECK(f * context <= kAngleMax);
    for (int32_t t = 0; t < context; ++t) {
      float* pair = out + 2 * (static_cast<int64_t>(t) * pairs + i);
      pair[0] = static_cast<float>(cos_exact(t * f));
      pair[1] = static_cast<float>(sin_exact(t * f));
    }
  }
}

}  // namespace headrace::kernels
