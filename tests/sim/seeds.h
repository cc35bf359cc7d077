#pragma once

#include "tests/sim/cluster.h"

namespace headrace::sim {

// What a seed means: the shape of its cluster, its load and its misfortunes. Seeds differ in kind,
// so that each kind of trouble also comes alone, where it can be told apart.
ClusterOptions options_of(uint64_t seed);

}  // namespace headrace::sim
