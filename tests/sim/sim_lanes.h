#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/sim/nccl_fabric.h"
#include "worker/nccl_pairs.h"

namespace headrace::sim {

// The library of one worker of a simulated cluster.
struct SimNccl {
  SimNccl(std::shared_ptr<NcclFabric> f, const std::shared_ptr<Strand>& strand)
      : fabric(std::move(f)),
        driver(*fabric, strand, 22809, [](const std::byte*) { return true; }) {}
  const std::shared_ptr<NcclFabric> fabric;
  FakeNccl driver;
};

// Its NCCL side.
class SimLanes final : SimNccl, public worker::NcclPairs {
 public:
  SimLanes(std::shared_ptr<NcclFabric> f, const std::shared_ptr<Strand>& strand,
           const worker::NcclOptions& options)
      : SimNccl(std::move(f), strand), NcclPairs(strand, SimNccl::driver, options) {}
  FakeNccl& fake() { return SimNccl::driver; }
};

}  // namespace headrace::sim
