#include "tests/sim/sim_copies.h"

#include <algorithm>

#include "kernels/device.h"
#include "protocol/check.h"
#include "worker/crc32c.h"

namespace headrace::sim {

SimCopies::SimCopies(Clock& clock, std::span<std::byte> memory, size_t block_bytes)
    : clock_(clock), memory_(memory), block_bytes_(block_bytes) {}

std::span<std::byte> SimCopies::room(std::vector<std::byte>& half) const {
  half.resize(kSlotBlocks * block_bytes_);
  return half;
}

std::span<std::byte> SimCopies::block(uint32_t id) const {
  return memory_.subspan(id * block_bytes_, block_bytes_);
}

void SimCopies::check() const {
  if (lost_) throw kernels::DeviceError("the simulated device has gone");
}

void SimCopies::begin(uint32_t index, std::span<const uint32_t> blocks, bool host) {
  check();
  Slot& slot = slots_.at(index);
  CHECK(slot.blocks.empty() && !blocks.empty() && blocks.size() <= kSlotBlocks);
  for (const uint32_t b : blocks) CHECK(b < memory_.size() / block_bytes_);
  slot.blocks.assign(blocks.begin(), blocks.end());
  slot.with_host = host;
  slot.due = clock_.now() + kTakes * (1 + index % kernels::kCopySlots);
  ++begun_;
}

std::optional<std::span<const uint32_t>> SimCopies::poll(uint32_t index) {
  check();
  Slot& slot = slots_.at(index);
  CHECK(!slot.blocks.empty());
  if (hangs_ || clock_.now() < slot.due) return std::nullopt;
  const bool in = index >= kernels::kCopySlots;
  if (in && slot.with_host) std::ranges::copy(host(index), device(index).begin());
  slot.crcs.clear();
  for (size_t i = 0; i < slot.blocks.size(); ++i) {
    const auto staged = device(index).subspan(i * block_bytes_, block_bytes_);
    const auto pool = block(slot.blocks[i]);
    slot.crcs.push_back(worker::crc32c(in ? staged : pool));
    std::ranges::copy(in ? staged : pool, (in ? pool : staged).begin());
  }
  if (!in && slot.with_host) std::ranges::copy(device(index), host(index).begin());
  slot.blocks.clear();
  return slot.crcs;
}

}  // namespace headrace::sim
