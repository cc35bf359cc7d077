#pragma once

#include <string>

#include "tests/gpu/bench.h"

// The parts of gpu_measure (README.md); each prints its rows as it has them.

namespace headrace::gpu {

// What the GPU is.
void describe_device(int ordinal);
// `seconds` in all.
void measure_limits(int ordinal, bool tiny, double seconds);
void run_wrappers(const Bench& bench);
void measure_steps(int ordinal, bool tiny, const std::string& model, double each);

}  // namespace headrace::gpu
