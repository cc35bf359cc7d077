#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/sim_copies.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/virtual_time.h"
#include "worker/handoff_receiver.h"
#include "worker/handoff_sender.h"
#include "worker/handoff_wire.h"

namespace headrace::worker {

// Where the blocks of both sides are: memory of the host, or of a simulated device.
enum class Blocks : uint8_t { kHost, kStaged };

// Both halves of a hand-off without workers: memory is plain vectors.
struct HandoffRig {
  static constexpr uint32_t kBlockTokens = 16;
  static constexpr uint64_t kBlockBytes = 1000;
  static constexpr uint32_t kBlocks = 32;
  // Of workers that are alike but for the layout of their KV.
  static Digest layout_of(const char* kv) {
    ModelCard card;
    card.kv_layout = kv;
    return layout_digest(card);
  }
  static inline const Digest kLayout = layout_of("f16 block");
  static inline const HandoffKey kKey{7, 8};
  static inline const Incarnation kDecode{9, 10};

  explicit HandoffRig(Blocks where = Blocks::kHost,
                      std::shared_ptr<LaneSource> lanes_of_p = nullptr,
                      std::shared_ptr<LaneSource> lanes_of_d = nullptr)
      : staged(where == Blocks::kStaged),
        p_lanes(std::move(lanes_of_p)),
        d_lanes(std::move(lanes_of_d)) {
    options.slice_bytes = 300;
    p_stage = std::make_unique<BlockStage>(p_strand, p_copies, [this](const auto&) { ++lost; });
    d_stage = std::make_unique<BlockStage>(d_strand, d_copies, [this](const auto&) { ++lost; });
    for (auto& b : source) b = static_cast<std::byte>(world.random().next());
    open();
  }
  ~HandoffRig() {
    sender.reset();
    receiver.reset();
  }

  void open() {
    HandoffReceiver::Host host;
    host.ours = [this](BlockRef ref) { return !gone.contains(raw(ref.block)); };
    host.memory = memory(target, d_stage);
    host.memory.lanes = d_lanes;
    host.stopped = [this](TransferId t) { stopped.push_back(t); };
    host.began = [this](TransferId t) { began.push_back(t); };
    host.ended = [this](TransferId t, Status s) { ended[t] = std::move(s); };
    host.times = [this](TransferId t, const ReceiveTimes& seen) { times[t] = seen; };
    auto r = HandoffReceiver::listen(d_strand, d->network(), {"d", 0}, options,
                                     {kLayout, kBlockTokens, kBlockBytes}, std::move(host));
    receiver = std::move(r).value();
    d_strand->post([this] { sweep_receiver(); });
    p_strand->post([this] { sweep_sender(); });
  }
  BlockMemory memory(std::vector<std::byte>& blocks, const std::unique_ptr<BlockStage>& stage) {
    if (staged) return {{}, stage.get()};
    return {[&blocks](BlockId id) { return blocks.data() + raw(id) * kBlockBytes; }};
  }
  void sweep_receiver() {
    d_timer = d_strand->after(100ms, [this] { sweep_receiver(); });
    if (sweeping_receiver && receiver) receiver->sweep();
  }
  void sweep_sender() {
    p_timer = p_strand->after(100ms, [this] { sweep_sender(); });
    if (sweeping_sender && sender) sender->sweep();
  }

  ReceiveGrant grant(uint32_t tokens) const {
    ReceiveGrant g;
    g.transfer = {1, 1};
    g.attempt = Attempt{1};
    g.decode = kDecode;
    g.key = kKey;
    g.tokens = tokens;
    const uint32_t n = (tokens + kBlockTokens - 1) / kBlockTokens;
    for (uint32_t i = 0; i < n; ++i) g.blocks.push_back({BlockId{2 * i}, Generation{i + 1}});
    return g;
  }
  SendJob job(const ReceiveGrant& g) const {
    SendJob j;
    j.transfer = g.transfer;
    j.attempt = g.attempt;
    j.prefill = {11, 12};
    j.layout = kLayout;
    j.block_bytes = kBlockBytes;
    j.tokens = g.tokens;
    j.grant = {kDecode, receiver->endpoint(), kKey, g.blocks, g.first_block};
    return j;
  }
  void dial(SendJob j) {
    p_strand->post([this, job = std::move(j)] {
      BlockMemory blocks = memory(source, p_stage);
      blocks.lanes = p_lanes;
      sender = std::make_unique<HandoffSender>(p_strand, p->network(), options, job, blocks,
                                               [this](Status s) { done = std::move(s); });
    });
  }
  void push(std::vector<uint32_t> blocks, bool last) {
    p_strand->post([this, blocks = std::move(blocks), last] {
      std::vector<BlockId> ids;
      for (const uint32_t b : blocks) ids.push_back(BlockId{b});
      sender->push(std::move(ids));
      if (last) sender->finish();
    });
  }
  bool arrived(uint32_t from, uint32_t to) const {
    const auto a = source.begin() + static_cast<ptrdiff_t>(from * kBlockBytes);
    return std::equal(a, a + kBlockBytes,
                      target.begin() + static_cast<ptrdiff_t>(to * kBlockBytes));
  }

  // How many slots for the way in can be lent at once.
  size_t free_slots(Strand& strand, BlockStage& stage) {
    const auto got = std::make_shared<std::vector<BlockStage::SlotPtr>>();
    for (uint32_t i = 0; i < kernels::kCopySlots; ++i) {
      strand.post([&stage, weak = std::weak_ptr(got)] {
        stage.lend(kernels::CopyWay::kIn, [weak](BlockStage::SlotPtr slot) {
          if (const auto all = weak.lock()) all->push_back(std::move(slot));
        });
      });
    }
    world.run_for(20ms);
    return got->size();
  }

  sim::SimWorld world{{.seed = 1}};
  sim::SimProcess* p = &world.spawn("p");
  sim::SimProcess* d = &world.spawn("d");
  std::shared_ptr<Strand> p_strand = p->make_strand();
  std::shared_ptr<Strand> d_strand = d->make_strand();
  HandoffOptions options = sim::on_virtual_time();
  std::vector<std::byte> source = std::vector<std::byte>(kBlocks * kBlockBytes);
  std::vector<std::byte> target = std::vector<std::byte>(kBlocks * kBlockBytes);
  const bool staged;
  const std::shared_ptr<LaneSource> p_lanes, d_lanes;  // or none
  sim::SimCopies p_copies{*p_strand, source, kBlockBytes};
  sim::SimCopies d_copies{*d_strand, target, kBlockBytes};
  std::unique_ptr<BlockStage> p_stage;
  std::unique_ptr<BlockStage> d_stage;
  int lost = 0;
  std::vector<TransferId> stopped;
  std::map<uint32_t, bool> gone;  // blocks that D has freed
  std::unique_ptr<HandoffReceiver> receiver;
  std::unique_ptr<HandoffSender> sender;
  std::vector<TransferId> began;
  std::map<TransferId, Status> ended;
  std::map<TransferId, ReceiveTimes> times;
  std::optional<Status> done;
  bool sweeping_receiver = true;
  bool sweeping_sender = true;
  Timer d_timer;
  Timer p_timer;
};

}  // namespace headrace::worker
