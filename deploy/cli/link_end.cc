#include "deploy/cli/link_end.h"

#include <future>
#include <utility>

#include "deploy/cli/options.h"
#include "kernels/device.h"
#include "protocol/asio_runtime.h"
#include "protocol/random.h"
#include "worker/block_stage.h"
#include "worker/handoff_receiver.h"
#include "worker/handoff_sender.h"

namespace headrace::cli {

namespace {

// Blocks of a MiB, as models of 8 billion parameters have them.
constexpr uint32_t kBlockTokens = 32;
constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
constexpr size_t kRun = 8;  // blocks that are pushed at a time, as a step completes some
constexpr Duration kSweep = 100ms;

kernels::KvLayout link_layout() {
  kernels::KvLayout layout{.layers = 8, .kv_heads = 8, .head_dim = 128};
  layout.block_tokens = static_cast<int32_t>(kBlockTokens);
  return layout;
}

// The grant that both ends know: the blocks hold nothing that anybody may not read or write.
const Digest kLinkLayout{0x6c696e6b, 1};
const TransferId kLinkTransfer{0x6c696e6b, 2};
const HandoffKey kLinkKey{0x6c696e6b, 3};
const Incarnation kAnswers{0x6c696e6b, 4};
constexpr Attempt kLinkAttempt{1};

std::vector<BlockRef> link_blocks(uint32_t count) {
  std::vector<BlockRef> blocks;
  for (uint32_t i = 0; i < count; ++i) blocks.push_back({BlockId{i}, Generation{1}});
  return blocks;
}

}  // namespace

struct LinkEnd::Body {
  uint32_t blocks = 0;
  std::unique_ptr<kernels::Device> device;
  kernels::Buffer memory;
  std::unique_ptr<kernels::BlockCopies> copies;  // of a GPU
  TransportOptions::Choice transport;
  OsRandom random;
  AsioRuntime runtime{1};
  AsioNetwork network{runtime};
  std::shared_ptr<Strand> strand = runtime.make_strand();
  // On the strand.
  std::unique_ptr<worker::BlockStage> stage;
  std::shared_ptr<worker::LaneSource> lanes;
  std::unique_ptr<worker::HandoffReceiver> receiver;
  std::unique_ptr<worker::HandoffSender> sender;
  Timer timer;

  template <class F>
  auto on_strand(F body) {
    std::packaged_task<decltype(body())()> task(std::move(body));
    auto result = task.get_future();
    strand->post(std::move(task));
    return result.get();
  }

  void begin() {
    if (copies) {
      stage = std::make_unique<worker::BlockStage>(strand, *copies, [](const std::string&) {});
      const uint64_t slot_bytes = stage->slot_blocks() * kBlockBytes;
      if (const auto maker = transport.maker()) lanes = maker(strand, random, slot_bytes);
    }
    sweep();
  }

  void sweep() {
    timer = strand->after(kSweep, [this] { sweep(); });
    if (lanes) lanes->sweep();
    if (receiver) receiver->sweep();
    if (sender) sender->sweep();
  }

  worker::BlockMemory block_memory(bool with_lanes) {
    if (stage) return {{}, stage.get(), with_lanes ? lanes : nullptr};
    return {[this](BlockId id) { return memory.data() + raw(id) * kBlockBytes; }};
  }

  void expect() {
    worker::ReceiveGrant grant;
    grant.transfer = kLinkTransfer;
    grant.attempt = kLinkAttempt;
    grant.decode = kAnswers;
    grant.key = kLinkKey;
    grant.tokens = blocks * kBlockTokens;
    grant.blocks = link_blocks(blocks);
    receiver->expect(std::move(grant));
  }

  Result<Endpoint> listen(const Endpoint& at) {
    worker::HandoffReceiver::Host host;
    host.ours = [](BlockRef) { return true; };
    host.memory = block_memory(true);
    host.began = [](TransferId) {};
    // Posted: the receiver is in the middle of ending it.
    host.ended = [this](TransferId, const Status&) {
      strand->post([this] {
        if (receiver) expect();
      });
    };
    auto opened = worker::HandoffReceiver::listen(
        strand, network, at, {}, {kLinkLayout, kBlockTokens, kBlockBytes}, std::move(host));
    if (!opened) return opened.error();
    receiver = std::move(*opened);
    expect();
    return receiver->endpoint();
  }

  void start(const Endpoint& to, bool with_lanes, std::function<void(Status)> done) {
    worker::SendJob job;
    job.transfer = kLinkTransfer;
    job.attempt = kLinkAttempt;
    job.prefill = {random.next(), random.next()};
    job.layout = kLinkLayout;
    job.block_bytes = kBlockBytes;
    job.tokens = blocks * kBlockTokens;
    job.grant = {kAnswers, to, kLinkKey, link_blocks(blocks)};
    sender = std::make_unique<worker::HandoffSender>(strand, network, worker::HandoffOptions(),
                                                     std::move(job), block_memory(with_lanes),
                                                     std::move(done));
    std::vector<BlockId> run;
    for (uint32_t i = 0; i < blocks; ++i) {
      run.push_back(BlockId{i});
      if (run.size() == kRun || i + 1 == blocks) sender->push(std::exchange(run, {}));
    }
    sender->finish();
  }

  // Whether nothing reads the blocks any more, and the sender is gone.
  bool stop() {
    const auto quiet = std::make_shared<std::promise<void>>();
    auto future = quiet->get_future();
    on_strand([&] {
      if (sender->stop([quiet] { quiet->set_value(); })) quiet->set_value();
    });
    if (future.wait_for(kWithin) != std::future_status::ready) return false;
    on_strand([&] { sender = nullptr; });
    return true;
  }
};

LinkEnd::LinkEnd(std::unique_ptr<Body> body) : body_(std::move(body)) {}

LinkEnd::~LinkEnd() {
  body_->on_strand([this] {
    body_->timer.cancel();
    body_->sender = nullptr;
    body_->receiver = nullptr;
    body_->lanes = nullptr;
    body_->stage = nullptr;
  });
  body_->on_strand([] {});  // what they let go later
  body_->runtime.stop();
}

Result<std::unique_ptr<LinkEnd>> LinkEnd::open(const std::string& device,
                                               const TransportOptions& transport, uint32_t mib) {
  auto body = std::make_unique<Body>();
  auto choice = transport.choose(device);
  if (!choice) return choice.error();
  body->transport = std::move(*choice);
  auto made = make_device(device, 1);
  if (!made) return made.error();
  body->device = std::move(*made);
  body->blocks = mib;
  kernels::KvPool pool{link_layout(), nullptr};
  try {
    body->memory = body->device->allocate(mib * kBlockBytes);
    pool.base = body->memory.data();
    body->copies = body->device->block_copies(pool, mib);
  } catch (const std::bad_alloc&) {
    return error(Errc::kOverloaded, device + " has no " + std::to_string(mib) + " MiB free");
  }
  std::vector<std::byte> some(kBlockBytes);
  for (size_t i = 0; i < some.size(); ++i) some[i] = std::byte((i * 37 + i / 251) & 0xff);
  for (uint32_t i = 0; i < mib; ++i)
    body->device->write(body->memory.data() + i * kBlockBytes, some);
  body->on_strand([&] { body->begin(); });
  return std::unique_ptr<LinkEnd>(new LinkEnd(std::move(body)));
}

const std::string& LinkEnd::sentence() const { return body_->transport.sentence; }

Result<Endpoint> LinkEnd::answer(const Endpoint& at) {
  return body_->on_strand([&] { return body_->listen(at); });
}

Result<LinkEnd::Sent> LinkEnd::send(const Endpoint& to, bool lanes) {
  const auto over = std::make_shared<std::promise<Status>>();
  auto future = over->get_future();
  body_->on_strand([&] {
    body_->start(to, lanes, [over](Status status) { over->set_value(std::move(status)); });
  });
  const bool ended = future.wait_for(kWithin) == std::future_status::ready;
  Status status = ended ? future.get() : error(Errc::kDeadline, "it has not ended in time");
  const Sent sent = body_->on_strand([&] {
    return Sent{body_->sender->lane_kind() == worker::LaneKind::kNccl, body_->sender->bytes_sent(),
                std::chrono::duration<double>(body_->sender->on_wire()).count()};
  });
  if (!body_->stop()) status = error(Errc::kInternal, "it could not be stopped");
  if (!status.ok()) return status;
  return sent;
}

}  // namespace headrace::cli
