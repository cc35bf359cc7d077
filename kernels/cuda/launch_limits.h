#pragma once

#include <cstddef>
#include <cstdint>

// What launchers check alike.

namespace headrace::cuda {

// Blocks of a grid along x (CUDA C++ Programming Guide, technical specifications: 2^31 - 1).
constexpr size_t kGridMax = 0x7fffffff;

// Whether 16-byte vectors may be read and written there.
inline bool vector_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace headrace::cuda
