#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matrix.h"

// Tiling::kFragments: weights as the 16-row operand of the tensor cores' mma.m16n8k16 (PTX ISA,
// "Matrix Fragments for mma.m16n8k16"). One format for every number of rows and every GPU.
//
// Rows are padded with zeros to a multiple of kStripRows and K to a multiple of kStripGroup. Strip
// s holds rows [16s, 16s+16), or, if the matrix is paired, rows [8s, 8s+8) as its rows 0..7 and
// rows rows/2 + [8s, 8s+8) as its rows 8..15 (rows/2 is then a multiple of 8). A strip is
// ceil(K/64) units in K order. A unit is 16 rows x 64 k: lines of 512 bytes, of which lane l takes
// 16 at 16 l, then scales and minima. With g = l / 4, t = l % 4 and group h = 0, 1 (k = 32h..):
//
//   kW4, kW4Min   one line: words (h 0, row g), (h 0, row g+8), (h 1, row g), (h 1, row g+8), each
//                 the quants of k = 32h + 8t + e, e = 0..7, at bits kFragmentShift[e]
//   kW8           line h: bytes of k = 32h + 8t + e of row g, then of row g+8, as they are
//   kF16, kBf16   line 2h + s, s = 0, 1: row g, k = 32h + 8t + 4s + {0, 1}; row g+8, the same; row
//                 g, k = ... + {2, 3}; row g+8, the same: the four registers of one mma
//   kF32          lines in threes (2h + s) 3 + p: plane p = 0, 1, 2 of the same, as bf16:
//                 w = plane 0 + plane 1 + plane 2, the upper, middle and lower 8 bits of it. Exact
//                 from |w| = kPlanesExact on; of a smaller one, what lies below bf16's smallest
//                 number, 2^-133, is lost
//   scales        kW4, kW4Min, kW8: f16 [h][g][row g, row g+8], 64 bytes
//   minima        kW4Min: the same again
//
// Of x the matching operand is, for k16 step s of group h, x[32h + 8t + 4s + 0..3]: both steps of a
// group are one 16-byte load a lane.

namespace headrace::kernels {

constexpr int kStripRows = 16;
constexpr int kStripGroup = 64;  // k of a unit
constexpr float kPlanesExact = 0x1p-110f;
constexpr uint32_t kFragmentShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

// The functions of matrix.h for this tiling; unpaired or paired as said there.
size_t fragment_unit_bytes(WeightType type);
size_t fragment_bytes(WeightType type, int64_t rows, int64_t cols);
// Packs strip `strip` from `source` (all `rows` rows) into `to` (the whole matrix). Independent.
void pack_strip(SourceType from, const std::byte* source, int32_t rows, int32_t cols, bool paired,
                int32_t strip, std::byte* to);
void unpack_fragment_row(const Matrix& m, int32_t row, float* out);
// The 64 weights of a row in one unit, padding included.
void unpack_fragment_unit(const Matrix& m, int32_t row, int32_t unit, float* out);

}  // namespace headrace::kernels
