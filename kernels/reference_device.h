#pragma once

#include "kernels/device.h"

// The device whose operations are the references: plain loops, sums in double, f32
// activations and KV; threads share out whole rows, so their number changes no bit. Slow; every
// other device is measured against it. Made by make_reference_device (device.h).
