#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headrace::kernels {

// Where a copy of KV blocks goes: from the pool to a slot, or back.
enum class CopyWay : uint8_t { kOut, kIn };

// Staging slots are as long as this, or as one block where that is longer, or as all blocks where
// they are fewer.
constexpr size_t kCopySlotBytes = size_t{8} << 20;
constexpr uint32_t kCopySlots = 4;  // each way
constexpr uint32_t copy_slot_blocks(size_t block_bytes, uint32_t blocks) {
  const size_t fit = kCopySlotBytes / block_bytes;
  return fit == 0 ? 1 : fit < blocks ? static_cast<uint32_t>(fit) : blocks;
}

// Whole KV blocks of a device whose memory the host does not see, from the pool to staging slots
// and back, beside what computes. Slots [0, kCopySlots) are for the way out, as many more for the
// way in. A slot has memory of the device and pinned memory of the host, of which `slot_blocks()`
// blocks take the first bytes, one behind the other.
//
// One thread at a time; no call waits for the device. Failures are thrown as DeviceError, by any
// call from then on.
class BlockCopies {
 public:
  virtual ~BlockCopies() = default;
  virtual uint32_t slot_blocks() const = 0;
  virtual std::span<std::byte> host(uint32_t slot) const = 0;
  virtual std::span<std::byte> device(uint32_t slot) const = 0;

  // Begins to copy `blocks`, at most slot_blocks() and no two alike, the way that the slot is for;
  // no other copy of the slot is under way. Out: pool to the device's half, and with `host` on to
  // the host's. In: with `host` first from the host's half to the device's; then to the pool. The
  // blocks and the slot are in use until poll() has said that it is over.
  virtual void begin(uint32_t slot, std::span<const uint32_t> blocks, bool host) = 0;
  // The CRC-32C of each block, as read on the device on its way, once all is done; valid until the
  // slot's next copy. Nothing while it is under way. Throws when it has been for longer than
  // kCopyHangs.
  virtual std::optional<std::span<const uint32_t>> poll(uint32_t slot) = 0;
};

}  // namespace headrace::kernels
