#pragma once

#include <cstddef>

#include "kernels/activation.h"
#include "kernels/matrix.h"

namespace headrace::kernels {

// A sum of products in double: four sums side by side, two by two.
class DotSum {
 public:
  using Pair = double __attribute__((vector_size(16)));
  static Pair load(const double* p) { return Pair{p[0], p[1]}; }
  void add(const double* a, Pair low, Pair high) {
    low_ += load(a) * low;
    high_ += load(a + 2) * high;
  }
  void add(double a, double x) { low_[0] += a * x; }
  double total() const { return low_[0] + low_[1] + high_[0] + high_[1]; }

 private:
  Pair low_{}, high_{};
};

inline double dot(const double* a, const double* x, size_t n) {
  DotSum sum;
  size_t k = 0;
  for (; k + 4 <= n; k += 4) sum.add(a + k, DotSum::load(x + k), DotSum::load(x + k + 2));
  for (; k < n; k++) sum.add(a[k], x[k]);
  return sum.total();
}

// Of two rows with the same x: the same bits as dot, faster.
inline void dot_two(const double* a, const double* b, const double* x, size_t n, double* out) {
  DotSum first, second;
  size_t k = 0;
  for (; k + 4 <= n; k += 4) {
    const DotSum::Pair low = DotSum::load(x + k), high = DotSum::load(x + k + 2);
    first.add(a + k, low, high);
    second.add(b + k, low, high);
  }
  for (; k < n; k++) {
    first.add(a[k], x[k]);
    second.add(b[k], x[k]);
  }
  out[0] = first.total();
  out[1] = second.total();
}

// How references deliver their rows: `values` [rows, width] to each destination that is set.
void deliver_rows(const float* values, int32_t rows, int32_t width, const RowsOut& to);
// Element `c` of row `r` of rows of `width`.
double row_at(const Rows& rows, size_t r, size_t c, size_t width);
// Bytes of one row of `width`, without sums.
uint64_t row_bytes(const Rows& rows, uint64_t width);
// What a product reads of one row: sums are for weights with a minimum alone.
uint64_t product_row_bytes(const Rows& rows, const Matrix& w);
// Bytes that a destination takes.
uint64_t rows_bytes(const RowsOut& to, int64_t rows, int64_t width);

}  // namespace headrace::kernels
