#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "kernels/block_copies.h"
#include "protocol/strand.h"

namespace headrace::sim {

// BlockCopies on virtual time. The memory of a copy is read and written when it is over, and the
// time that one takes differs from slot to slot: a block or a slot that is given away too early is
// caught, and copies end in another order than they began.
class SimCopies final : public kernels::BlockCopies {
 public:
  static constexpr uint32_t kSlotBlocks = 3;
  static constexpr Duration kTakes = 150us;  // and once more for each slot before

  SimCopies(Clock& clock, std::span<std::byte> memory, size_t block_bytes);

  uint32_t slot_blocks() const override { return kSlotBlocks; }
  std::span<std::byte> host(uint32_t slot) const override { return room(slots_.at(slot).host); }
  std::span<std::byte> device(uint32_t slot) const override { return room(slots_.at(slot).device); }
  void begin(uint32_t slot, std::span<const uint32_t> blocks, bool host) override;
  std::optional<std::span<const uint32_t>> poll(uint32_t slot) override;

  // From now on all calls throw.
  void lose() { lost_ = true; }
  // Copies under way do not end, until this is taken back.
  void hang(bool on) { hangs_ = on; }
  uint64_t begun() const { return begun_; }

 private:
  struct Slot {
    mutable std::vector<std::byte> host;
    mutable std::vector<std::byte> device;
    std::vector<uint32_t> blocks;  // of the copy under way
    bool with_host = false;
    Instant due{};
    std::vector<uint32_t> crcs;
  };
  std::span<std::byte> block(uint32_t id) const;
  std::span<std::byte> room(std::vector<std::byte>& half) const;  // taken when first used
  void check() const;

  Clock& clock_;
  std::span<std::byte> memory_;
  const size_t block_bytes_;
  std::array<Slot, size_t{2} * kernels::kCopySlots> slots_;
  uint64_t begun_ = 0;
  bool lost_ = false;
  bool hangs_ = false;
};

}  // namespace headrace::sim
