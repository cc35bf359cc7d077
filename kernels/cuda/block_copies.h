#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "kernels/block_copies.h"
#include "kernels/cuda/runtime.h"
#include "kernels/kv.h"

namespace headrace::cuda {

// A copy of a few MiB that takes longer is the device's failure.
constexpr std::chrono::seconds kCopyHangs{10};
// Bytes that one block of threads copies.
constexpr uint32_t kCopyPartBytes = uint32_t{64} << 10;

// BlockCopies of a GPU: a stream for each slot, so that copies of either way and of several slots
// overlap, and with them what computes. `pool` holds `blocks` blocks and outlives this. Throws
// DeviceError, std::bad_alloc.
class SlotCopies final : public kernels::BlockCopies {
 public:
  SlotCopies(int ordinal, int processors, const kernels::KvPool& pool, uint32_t blocks);
  ~SlotCopies() override;  // waits for what is under way

  uint32_t slot_blocks() const override { return slot_blocks_; }
  std::span<std::byte> host(uint32_t slot) const override {
    return bytes(slots_.at(slot).staged.host);
  }
  std::span<std::byte> device(uint32_t slot) const override {
    return bytes(slots_.at(slot).staged.own);
  }
  void begin(uint32_t slot, std::span<const uint32_t> blocks, bool host) override;
  std::optional<std::span<const uint32_t>> poll(uint32_t slot) override;

 private:
  struct Slot {
    explicit Slot(int ordinal) : stream(ordinal) {}
    Stream stream;
    kernels::Mirror staged;
    kernels::Mirror ids;
    kernels::Mirror sums;  // of parts of blocks
    std::vector<uint32_t> crcs;
    uint32_t count = 0;  // of blocks under way; 0: none
    std::chrono::steady_clock::time_point begun;
  };

  static std::span<std::byte> bytes(const kernels::Buffer& b) { return {b.data(), b.size()}; }
  kernels::Mirror mirror(size_t bytes, const Stream& stream) const;
  void copy(const Slot& slot, const kernels::Mirror& mirror, size_t bytes, bool up) const;
  size_t parts() const { return (block_bytes_ + part_bytes_ - 1) / part_bytes_; }

  const int ordinal_;
  const int processors_;
  std::byte* const pool_;
  const size_t block_bytes_;
  const uint32_t part_bytes_;
  const uint32_t blocks_;
  const uint32_t slot_blocks_;
  const uint32_t whole_power_;  // what appending a whole part does to a checksum
  const uint32_t last_power_;   // and the last part of a block
  std::deque<Slot> slots_;
};

}  // namespace headrace::cuda
