#pragma once

#include "kernels/activation.h"

namespace headrace::kernels {

// How references deliver their rows: `values` [rows, width] to each destination that is set.
void deliver_rows(const float* values, int32_t rows, int32_t width, const RowsOut& to);
// Bytes that a destination takes.
uint64_t rows_bytes(const RowsOut& to, int64_t rows, int64_t width);

}  // namespace headrace::kernels
