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

// P's end of a lane that may lose what is posted to it: nobody ever offers it.
class LossyLane final : public worker::PayloadLane {
 public:
  LossyLane(std::unique_ptr<worker::PayloadLane> lane, const NcclFaults& faults)
      : lane_(std::move(lane)), faults_(faults) {}
  Status heard(std::span<const std::byte> note) override { return lane_->heard(note); }
  void post(worker::LaneSlot slot) override {
    if (!faults_.lose_posts) lane_->post(slot);
  }
  worker::LaneState close(worker::LaneEnding why) override { return lane_->close(why); }
  worker::LaneState state() const override { return lane_->state(); }
  worker::LaneCounters counters() const override { return lane_->counters(); }

 private:
  const std::unique_ptr<worker::PayloadLane> lane_;
  const NcclFaults& faults_;  // of the driver, which outlives it
};

// Its NCCL side.
class SimLanes final : SimNccl, public worker::NcclPairs {
 public:
  SimLanes(std::shared_ptr<NcclFabric> f, const std::shared_ptr<Strand>& strand,
           const worker::NcclOptions& options)
      : SimNccl(std::move(f), strand), NcclPairs(strand, SimNccl::driver, options) {}
  std::unique_ptr<worker::PayloadLane> lane(worker::LaneEnd end, Incarnation peer,
                                            const worker::LaneTerms& terms,
                                            worker::PayloadLane::Host host) override {
    auto lane = NcclPairs::lane(end, peer, terms, std::move(host));
    if (end == worker::LaneEnd::kDecode) return lane;
    return std::make_unique<LossyLane>(std::move(lane), SimNccl::driver.faults);
  }
  FakeNccl& fake() { return SimNccl::driver; }
};

}  // namespace headrace::sim
