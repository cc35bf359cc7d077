#pragma once

#include <cstddef>

#include "kernels/activation.h"
#include "kernels/matrix.h"

namespace headrace::kernels {

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
