#pragma once

#include "kernels/device.h"

// The device whose operations are the references: one thread, plain loops, sums in double, f32
// activations and KV. Slow; every other device is measured against it. Made by
// make_reference_device (device.h).
