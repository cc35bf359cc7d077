#include "worker/block_stage.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/sim/sim_copies.h"
#include "tests/sim/sim_world.h"
#include "worker/crc32c.h"

namespace headrace::worker {
namespace {

using kernels::CopyWay;
using kernels::kCopySlots;

constexpr size_t kBlockBytes = 64;

struct Rig {
  Rig() {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 13 + i / 64);
    stage = std::make_unique<BlockStage>(strand, copies,
                                         [this](const auto& why) { lost.push_back(why); });
  }
  BlockStage::SlotPtr lend(CopyWay way) {
    BlockStage::SlotPtr got;
    stage->lend(way, [&](BlockStage::SlotPtr slot) { got = std::move(slot); });
    CHECK(got == nullptr);  // never from inside
    world.run_for(1ms);
    return got;
  }
  std::span<const std::byte> block(uint32_t b) const {
    return std::span(memory).subspan(b * kBlockBytes, kBlockBytes);
  }

  sim::SimWorld world{{.seed = 1}};
  sim::SimProcess* process = &world.spawn("w");
  std::shared_ptr<Strand> strand = process->make_strand();
  std::vector<std::byte> memory = std::vector<std::byte>(8 * kBlockBytes);
  sim::SimCopies copies{*strand, memory, kBlockBytes};
  std::vector<std::string> lost;
  std::unique_ptr<BlockStage> stage;
};

TEST_CASE("blocks go to a slot and into other blocks, with their sums") {
  Rig rig;
  const auto out = rig.lend(CopyWay::kOut);
  const auto in = rig.lend(CopyWay::kIn);
  REQUIRE(out);
  REQUIRE(in);
  std::vector<uint32_t> sums;
  rig.stage->copy(out, std::vector{BlockId{5}, BlockId{2}}, true,
                  [&](const auto& c) { sums.assign(c.crcs.begin(), c.crcs.end()); });
  CHECK(rig.stage->under_way() == 1);
  rig.world.run_for(2ms);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0] == crc32c(rig.block(5)));
  CHECK(sums[1] == crc32c(rig.block(2)));
  std::ranges::copy(out->host(), in->host().begin());
  bool done = false;
  rig.stage->copy(in, std::vector{BlockId{0}, BlockId{7}}, true,
                  [&](const auto& c) { done = c.status.ok() && std::ranges::equal(c.crcs, sums); });
  rig.world.run_for(2ms);
  CHECK(done);
  CHECK(std::ranges::equal(rig.block(0), rig.block(5)));
  CHECK(std::ranges::equal(rig.block(7), rig.block(2)));
  CHECK(rig.stage->under_way() == 0);
}

TEST_CASE("slots are lent first come, first served, and each way has its own") {
  Rig rig;
  std::vector<int> order;
  std::vector<BlockStage::SlotPtr> held;
  for (int i = 0; i < int{kCopySlots} + 3; ++i) {
    rig.stage->lend(CopyWay::kOut, [&, i](BlockStage::SlotPtr slot) {
      order.push_back(i);
      held.push_back(std::move(slot));
    });
  }
  rig.world.run_for(1ms);
  CHECK(order.size() == kCopySlots);
  CHECK(rig.lend(CopyWay::kIn) != nullptr);
  for (size_t i = 1; i < held.size(); ++i) CHECK(held[i]->index() != held[0]->index());
  held.erase(held.begin());
  rig.world.run_for(1ms);
  REQUIRE(order.size() == kCopySlots + 1);
  held.clear();
  rig.world.run_for(1ms);
  REQUIRE(order.size() == kCopySlots + 3);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("who has lost interest lets its slot go, but not before the copy is over") {
  Rig rig;
  auto slot = rig.lend(CopyWay::kOut);
  const std::weak_ptr weak = slot;
  rig.stage->copy(slot, std::vector{BlockId{1}}, true, [](const auto&) {});
  slot = nullptr;
  CHECK(!weak.expired());
  rig.world.run_for(3ms);
  CHECK(weak.expired());
}

TEST_CASE("a device that fails is told once, and all copies end") {
  for (const bool under_way : {true, false}) {
    Rig rig;
    const auto a = rig.lend(CopyWay::kOut);
    const auto b = rig.lend(CopyWay::kIn);
    if (!under_way) rig.copies.lose();
    std::vector<Status> ended;
    const auto note = [&](const BlockStage::Copied& c) { ended.push_back(c.status); };
    rig.stage->copy(a, std::vector{BlockId{1}}, true, note);
    rig.stage->copy(b, std::vector{BlockId{2}}, true, note);
    CHECK(ended.empty());  // never from inside
    rig.copies.lose();
    rig.world.run_for(3ms);
    REQUIRE(ended.size() == 2);
    for (const Status& s : ended) CHECK(s.code == Errc::kInternal);
    CHECK(rig.lost.size() == 1);
    rig.stage->copy(a, std::vector{BlockId{1}}, true, note);
    rig.world.run_for(3ms);
    CHECK(ended.size() == 3);
  }
}

TEST_CASE("slots may outlive the stage") {
  Rig rig;
  auto slot = rig.lend(CopyWay::kOut);
  rig.stage->lend(CopyWay::kOut, [](auto) {});
  rig.stage = nullptr;
  CHECK(slot->host().empty());
  slot = nullptr;
  rig.world.run_for(1ms);
}

}  // namespace
}  // namespace headrace::worker
