#include "kernels/cuda/block_copies.h"

#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/copies.h"
#include "kernels/device.h"
#include "tests/simt/blocks_case.h"
#include "tests/simt/cudart/control.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

namespace headrace::cuda {
namespace {

using kernels::kCopySlots;

// Blocks of more than one part of a block of threads, the last of them shorter.
constexpr kernels::KvLayout kLayout{kernels::KvType::kF16, 3, 5, 80, 32, kernels::KvOrder::kRows};
constexpr uint32_t kBlocks = 7;

struct Rig {
  explicit Rig(uint32_t seed) {
    filled = simt::random_bytes(kBlocks * block_bytes(), seed);
    plain.write(memory.data(), filled);
    copies = std::make_unique<SlotCopies>(0, 4, kernels::KvPool{kLayout, memory.data()}, kBlocks);
  }
  static size_t block_bytes() { return kLayout.block_bytes(); }
  std::span<const std::byte> block(uint32_t b) const {
    return std::span(filled).subspan(b * block_bytes(), block_bytes());
  }
  std::vector<uint32_t> finish(uint32_t slot) {
    for (;;) {
      if (const auto crcs = copies->poll(slot)) return {crcs->begin(), crcs->end()};
      std::this_thread::yield();
    }
  }
  std::vector<std::byte> read(const std::byte* from, size_t bytes) {
    std::vector<std::byte> out(bytes);
    plain.read(out, from);
    return out;
  }

  Copies plain{0};
  kernels::Buffer memory = device_memory(0, kBlocks* block_bytes(), plain.stream());
  std::vector<std::byte> filled;
  std::unique_ptr<SlotCopies> copies;
};

TEST_CASE("blocks go out to the host's half with the sum of each, and come in elsewhere") {
  for (const auto mode : {simt::Streams::kLazy, simt::Streams::kThreaded}) {
    simt::reset(mode);
    Rig rig(1);
    REQUIRE(Rig::block_bytes() % kCopyPartBytes != 0);
    REQUIRE(Rig::block_bytes() > kCopyPartBytes);
    const std::vector<uint32_t> from{6, 0, 3};
    const std::vector<uint32_t> to{1, 5, 2};
    rig.copies->begin(0, from, true);
    const auto out = rig.finish(0);
    const auto host = rig.copies->host(0);
    REQUIRE(out.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      const auto sent = host.subspan(i * Rig::block_bytes(), Rig::block_bytes());
      CHECK(std::ranges::equal(sent, rig.block(from[i])));
      CHECK(out[i] == simt::plain_crc32c(rig.block(from[i])));
    }
    const auto arrived = rig.copies->host(kCopySlots);
    std::ranges::copy(host.first(3 * Rig::block_bytes()), arrived.begin());
    arrived[Rig::block_bytes() + 77] ^= std::byte{16};
    rig.copies->begin(kCopySlots, to, true);
    const auto in = rig.finish(kCopySlots);
    CHECK(in[0] == out[0]);
    CHECK(in[1] != out[1]);  // what was bent on its way
    CHECK(in[2] == out[2]);
    for (const uint32_t b : {0u, 3u, 4u, 6u})
      CHECK(std::ranges::equal(rig.read(rig.memory.data() + b * Rig::block_bytes(), 64),
                               rig.block(b).first(64)));
    CHECK(std::ranges::equal(rig.read(rig.memory.data() + Rig::block_bytes(), Rig::block_bytes()),
                             rig.block(6)));
    rig.copies = nullptr;
  }
  simt::reset();
}

TEST_CASE("between halves of the device alone, all slots at once") {
  simt::reset(simt::Streams::kThreaded);
  Rig rig(2);
  for (uint32_t s = 0; s < kCopySlots; ++s) rig.copies->begin(s, std::vector{s, s + 1}, false);
  for (uint32_t s = 0; s < kCopySlots; ++s) {
    const auto crcs = rig.finish(s);
    REQUIRE(crcs.size() == 2);
    CHECK(crcs[1] == simt::plain_crc32c(rig.block(s + 1)));
    CHECK(std::ranges::equal(rig.read(rig.copies->device(s).data(), Rig::block_bytes()),
                             rig.block(s)));
  }
  rig.copies = nullptr;
  simt::reset();
}

TEST_CASE("a device that has gone is an error of each call, never a wait") {
  simt::reset(simt::Streams::kThreaded);
  Rig rig(3);
  simt::hold_device(0, true);
  rig.copies->begin(0, std::vector{1u}, true);
  for (int i = 0; i < 100; ++i) CHECK(!rig.copies->poll(0).has_value());
  simt::hold_device(0, false);
  rig.finish(0);
  simt::lose_device(0);
  CHECK_THROWS_AS(rig.copies->begin(1, std::vector{1u}, true), kernels::DeviceError);
  rig.copies = nullptr;
  rig.memory = {};
  simt::reset();
}

}  // namespace
}  // namespace headrace::cuda
