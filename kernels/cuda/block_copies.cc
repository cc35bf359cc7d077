#include "kernels/cuda/block_copies.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/crc32c.h"
#include "kernels/device.h"

namespace headrace::cuda {
namespace {

using std::chrono::steady_clock;

uint32_t part_bytes(size_t block_bytes) {
  return static_cast<uint32_t>(std::min<size_t>(block_bytes, kCopyPartBytes));
}

uint32_t last_part(size_t block_bytes) {
  const size_t left = block_bytes % part_bytes(block_bytes);
  return left == 0 ? part_bytes(block_bytes) : static_cast<uint32_t>(left);
}

}  // namespace

SlotCopies::SlotCopies(int ordinal, int processors, const kernels::KvPool& pool, uint32_t blocks)
    : ordinal_(ordinal),
      processors_(processors),
      pool_(pool.base),
      block_bytes_(pool.layout.block_bytes()),
      part_bytes_(part_bytes(block_bytes_)),
      blocks_(blocks),
      slot_blocks_(kernels::copy_slot_blocks(block_bytes_, blocks)),
      whole_power_(crc32c_power(uint64_t{8} * part_bytes_)),
      last_power_(crc32c_power(uint64_t{8} * last_part(block_bytes_))) {
  for (uint32_t i = 0; i < 2 * kernels::kCopySlots; ++i) {
    Slot& slot = slots_.emplace_back(ordinal);
    slot.staged = mirror(slot_blocks_ * block_bytes_, slot.stream);
    slot.ids = mirror(slot_blocks_ * sizeof(uint32_t), slot.stream);
    slot.sums = mirror(slot_blocks_ * parts() * sizeof(uint32_t), slot.stream);
    slot.crcs.resize(slot_blocks_);
  }
}

SlotCopies::~SlotCopies() {
  cudaSetDevice(ordinal_);
  for (const Slot& slot : slots_)
    if (slot.count > 0) cudaStreamSynchronize(slot.stream.get());
}

kernels::Mirror SlotCopies::mirror(size_t bytes, const Stream& stream) const {
  return {pinned_memory(ordinal_, bytes), device_memory(ordinal_, bytes, stream)};
}

void SlotCopies::copy(const Slot& slot, const kernels::Mirror& mirror, size_t bytes,
                      bool up) const {
  const auto error = up ? cudaMemcpyAsync(mirror.own.data(), mirror.host.data(), bytes,
                                          cudaMemcpyHostToDevice, slot.stream.get())
                        : cudaMemcpyAsync(mirror.host.data(), mirror.own.data(), bytes,
                                          cudaMemcpyDeviceToHost, slot.stream.get());
  check(error, ordinal_, "a copy of KV blocks");
}

void SlotCopies::begin(uint32_t index, std::span<const uint32_t> blocks, bool host) {
  Slot& slot = slots_.at(index);
  KERNELS_CHECK(slot.count == 0 && !blocks.empty() && blocks.size() <= slot_blocks_);
  for (const uint32_t block : blocks) KERNELS_CHECK(block < blocks_);
  const bool in = index >= kernels::kCopySlots;
  const size_t count = blocks.size();
  check(cudaSetDevice(ordinal_), ordinal_, "the device cannot be used");
  slot.count = static_cast<uint32_t>(count);
  slot.begun = steady_clock::now();
  std::copy(blocks.begin(), blocks.end(), slot.ids.as<uint32_t>());
  copy(slot, slot.ids, count * sizeof(uint32_t), true);
  if (in && host) copy(slot, slot.staged, count * block_bytes_, true);
  const CopyBlocks op{.pool = pool_,
                      .block_bytes = block_bytes_,
                      .ids = slot.ids.device<uint32_t>(),
                      .count = slot.count,
                      .staged = slot.staged.own.data(),
                      .to_pool = in,
                      .slice_bytes = part_bytes_,
                      .sums = slot.sums.device<uint32_t>()};
  check(enqueue(op, {.stream = slot.stream.get(), .processors = processors_}), ordinal_,
        "a copy of KV blocks");
  copy(slot, slot.sums, count * parts() * sizeof(uint32_t), false);
  if (!in && host) copy(slot, slot.staged, count * block_bytes_, false);
}

std::optional<std::span<const uint32_t>> SlotCopies::poll(uint32_t index) {
  Slot& slot = slots_.at(index);
  KERNELS_CHECK(slot.count > 0);
  check(cudaSetDevice(ordinal_), ordinal_, "the device cannot be used");
  const cudaError_t state = cudaStreamQuery(slot.stream.get());
  if (state == cudaErrorNotReady) {
    if (steady_clock::now() - slot.begun < kCopyHangs) return std::nullopt;
    throw kernels::DeviceError("cuda:" + std::to_string(ordinal_) +
                               ": a copy of KV blocks is not over within " +
                               std::to_string(kCopyHangs.count()) + " s");
  }
  check(state, ordinal_, "a copy of KV blocks");
  const uint32_t* sum = slot.sums.as<uint32_t>();
  for (uint32_t b = 0; b < slot.count; ++b) {
    uint32_t crc = *sum++;
    for (size_t p = 1; p < parts(); ++p)
      crc = crc32c_append(crc, *sum++, p + 1 < parts() ? whole_power_ : last_power_);
    slot.crcs[b] = crc;
  }
  return std::span<const uint32_t>(slot.crcs).first(std::exchange(slot.count, 0));
}

}  // namespace headrace::cuda
