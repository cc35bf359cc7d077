#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/sim/nccl_fabric.h"
#include "worker/nccl_pairs.h"

namespace headrace::sim {

// The NCCL side of one worker of a simulated cluster.
class SimLanes final : public worker::LaneSource {
 public:
  SimLanes(std::shared_ptr<NcclFabric> fabric, const std::shared_ptr<Strand>& strand,
           const worker::NcclOptions& options)
      : fabric_(std::move(fabric)),
        driver_(*fabric_, strand, 22809, [](const std::byte*) { return true; }),
        pairs_(strand, driver_, options) {}
  worker::LaneTerms offer(Incarnation peer, std::string* why) override {
    return pairs_.offer(peer, why);
  }
  worker::LaneTerms answer(Incarnation peer, const worker::LaneTerms& offered,
                           std::string* why) override {
    return pairs_.answer(peer, offered, why);
  }
  Status agree(const worker::LaneTerms& offered, const worker::LaneTerms& answered) override {
    return pairs_.agree(offered, answered);
  }
  std::unique_ptr<worker::PayloadLane> lane(worker::LaneEnd end, Incarnation peer,
                                            const worker::LaneTerms& terms,
                                            worker::PayloadLane::Host host) override {
    return pairs_.lane(end, peer, terms, std::move(host));
  }
  void sweep() override { pairs_.sweep(); }
  Status health() const override { return pairs_.health(); }
  FakeNccl& driver() { return driver_; }

 private:
  const std::shared_ptr<NcclFabric> fabric_;
  FakeNccl driver_;
  worker::NcclPairs pairs_;
};

}  // namespace headrace::sim
