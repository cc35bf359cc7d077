#include "worker/block_stage.h"

#include <utility>

#include "kernels/device.h"
#include "protocol/check.h"

namespace headrace::worker {

using kernels::CopyWay;

std::span<std::byte> BlockStage::Slot::host() const {
  const auto stage = stage_.lock();
  return stage ? (*stage)->copies_.host(index_) : std::span<std::byte>();
}

std::span<std::byte> BlockStage::Slot::device() const {
  const auto stage = stage_.lock();
  return stage ? (*stage)->copies_.device(index_) : std::span<std::byte>();
}

BlockStage::BlockStage(std::shared_ptr<Strand> strand, kernels::BlockCopies& copies,
                       std::function<void(const std::string&)> lost)
    : strand_(std::move(strand)),
      copies_(copies),
      lost_(std::move(lost)),
      self_(std::make_shared<BlockStage*>(this)) {
  for (uint32_t i = 0; i < 2 * kernels::kCopySlots; ++i) side(i).free.push_back(i);
}

BlockStage::~BlockStage() = default;

void BlockStage::lend(CopyWay way, std::function<void(SlotPtr)> got) {
  Side& s = sides_[way == CopyWay::kIn ? 1 : 0];
  s.waiting.push_back(std::move(got));
  serve(s);
}

void BlockStage::serve(Side& s) {
  if (s.free.empty() || s.waiting.empty() || std::exchange(s.serving, true)) return;
  strand_->post([weak = std::weak_ptr(self_), &s] {
    if (const auto self = weak.lock()) (*self)->hand_out(s);
  });
}

void BlockStage::hand_out(Side& s) {
  s.serving = false;
  while (!s.free.empty() && !s.waiting.empty()) {
    const uint32_t index = s.free.back();
    s.free.pop_back();
    const auto got = std::move(s.waiting.front());
    s.waiting.pop_front();
    got(SlotPtr(new Slot(self_, index), [](Slot* slot) {
      const std::unique_ptr<Slot> owned(slot);
      const auto self = slot->stage_.lock();
      if (self && !slot->abandoned_) (*self)->give_back(slot->index_);
    }));
  }
}

void BlockStage::give_back(uint32_t slot) {
  side(slot).free.push_back(slot);
  serve(side(slot));
}

void BlockStage::copy(const SlotPtr& slot, std::span<const BlockId> blocks, bool host,
                      std::function<void(const Copied&)> done) {
  std::vector<uint32_t> ids;
  ids.reserve(blocks.size());
  for (const BlockId block : blocks) ids.push_back(raw(block));
  running_.push_back({slot, std::move(done)});
  watch();
  if (failed_) return;
  try {
    copies_.begin(slot->index(), ids, host);
  } catch (const kernels::DeviceError& why) {
    fail(why.what());
  }
}

void BlockStage::watch() {
  if (std::exchange(watching_, true)) return;
  timer_ = strand_->after(kPollEvery, [this] { poll(); });
}

void BlockStage::poll() {
  watching_ = false;
  for (size_t n = running_.size(); n > 0; --n) {
    Running running = std::move(running_.front());
    running_.pop_front();
    if (!over(running)) running_.push_back(std::move(running));
  }
  if (!running_.empty()) watch();
}

// Tells who waits, if there is something to tell.
bool BlockStage::over(const Running& running) {
  std::optional<std::span<const uint32_t>> crcs;
  try {
    if (!failed_) crcs = copies_.poll(running.slot->index());
  } catch (const kernels::DeviceError& why) {
    fail(why.what());
  }
  if (failed_) {
    running.done({*failed_, {}});
    return true;
  }
  if (crcs) running.done({{}, *crcs});
  return crcs.has_value();
}

void BlockStage::fail(const std::string& why) {
  if (failed_) return;
  failed_ = error(Errc::kInternal, why);
  lost_(why);
}

}  // namespace headrace::worker
