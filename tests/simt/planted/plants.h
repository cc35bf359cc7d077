#pragma once

#include <optional>
#include <span>

#include "tests/simt/launch.h"

namespace headrace::simt::planted {

// What a run of one plant in the current order came to.
struct Outcome {
  std::optional<Fault> fault;
  bool right = true;  // its results; nothing when there is a fault
};

// How a build notices: by wrong values in one of its orders, by the emulator's fault in one of
// them, by its sanitizer's report, or not at all.
enum class Sees : uint8_t { kNothing, kValues, kFault, kReport };

// A small kernel with one mistake behind a switch; without the mistake it is right in every order
// and build.
struct Plant {
  const char* name;
  Outcome (*run)(bool planted);
  Sees plain;
  Sees asan;
  Sees tsan;
};

std::span<const Plant> block_plants();      // block.cc
std::span<const Plant> warp_plants();       // warp.cc
std::span<const Plant> copy_plants();       // copies.cc
std::span<const Plant> bulk_plants();       // bulk.cc
std::span<const Plant> dependent_plants();  // dependent.cc

}  // namespace headrace::simt::planted
