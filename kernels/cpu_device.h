#pragma once

#include "kernels/device.h"

// The CPU's device: the bodies of one instruction set over a thread pool; f16 KV, int8 activations.
// Made by make_cpu_device (device.h).

namespace headrace::kernels {

// Processors that this process may use, as its affinity says; at least 1.
int usable_threads();

}  // namespace headrace::kernels
