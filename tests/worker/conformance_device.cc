#include <algorithm>
#include <thread>

#include "protocol/check.h"
#include "protocol/random.h"
#include "tests/worker/conformance.h"

namespace headrace::worker {

Device::Device(const Transport& transport, uint64_t id, DeviceShape s, HandoffOptions o)
    : shape(s),
      incarnation{id, 1},
      strand(transport.strand()),
      options(o),
      network_(transport.network),
      staged_(transport.staged),
      memory_(s.blocks * s.block_bytes),
      copies_(*strand, memory_, s.block_bytes),
      make_lanes_(transport.lanes) {
  on_strand(strand, [&] {
    stage_ = std::make_unique<BlockStage>(strand, copies_, [](const auto&) { std::abort(); });
    listen(transport.home);
    sweep();
  });
  fill(static_cast<uint32_t>(id));
}

Device::~Device() {
  on_strand(strand, [&] {
    timer_.cancel();
    senders.clear();
    receiver = nullptr;
    lanes_ = nullptr;
    stage_ = nullptr;
  });
  on_strand(strand, [] {});  // what they let go later
}

BlockMemory Device::memory() {
  if (staged_) return {{}, stage_.get(), lanes_};
  return {[this](BlockId id) { return memory_.data() + raw(id) * shape.block_bytes; }};
}

void Device::listen(const Endpoint& at) {
  if (make_lanes_) lanes_ = make_lanes_(strand, stage_->slot_blocks() * shape.block_bytes);
  HandoffReceiver::Host host;
  host.ours = [](BlockRef) { return true; };
  host.memory = memory();
  host.began = [this](TransferId t) { began.push_back(t); };
  host.ended = [this](TransferId t, Status s) { ended[t] = std::move(s); };
  host.stopped = [this](TransferId t) { stopped.push_back(t); };
  auto opened = HandoffReceiver::listen(strand, network_, at, options,
                                        {kLayout, kBlockTokens, shape.block_bytes}, host);
  CHECK(opened.has_value());
  receiver = std::move(*opened);
}

void Device::sweep() {
  timer_ = strand->after(20ms, [this] { sweep(); });
  if (!sweeps) return;
  if (lanes_) lanes_->sweep();
  if (receiver) receiver->sweep();
  for (auto& [id, s] : senders) s->sweep();
}

void Device::restart() {
  on_strand(strand, [&] {
    const Endpoint at = receiver->endpoint();
    receiver = nullptr;
    ++lives_;
    listen(at);
  });
}

ReceiveGrant Device::grant(uint32_t tokens, const std::function<uint32_t(uint32_t)>& place,
                           uint32_t first_block) {
  return on_strand(strand, [&] {
    ReceiveGrant g;
    g.transfer = {incarnation.hi, ++transfers_};
    g.attempt = Attempt{1};
    g.decode = {incarnation.hi, lives_};
    g.key = {7, transfers_};
    g.tokens = tokens;
    g.first_block = first_block;
    for (uint32_t i = first_block; i < (tokens + kBlockTokens - 1) / kBlockTokens; ++i)
      g.blocks.push_back({BlockId{place(i)}, Generation{i + 1}});
    receiver->expect(g);
    return g;
  });
}

void Device::begin(const ReceiveGrant& grant, const Endpoint& to,
                   const std::function<void(SendJob&)>& change) {
  SendJob job;
  job.transfer = grant.transfer;
  job.attempt = grant.attempt;
  job.prefill = incarnation;
  job.layout = kLayout;
  job.block_bytes = shape.block_bytes;
  job.tokens = grant.tokens;
  job.grant = {grant.decode, to, grant.key, grant.blocks, grant.first_block};
  if (change) change(job);
  on_strand(strand, [&] {
    const TransferId id = grant.transfer;
    done.erase(id);
    senders[id] = std::make_unique<HandoffSender>(strand, network_, options, job, memory(),
                                                  [this, id](Status s) {
                                                    done_at = strand->now();
                                                    done[id] = std::move(s);
                                                  });
  });
}

void Device::push(TransferId transfer, std::vector<uint32_t> from, bool last) {
  on_strand(strand, [&] {
    std::vector<BlockId> run;
    for (const uint32_t b : from) run.push_back(BlockId{b});
    senders.at(transfer)->push(std::move(run));
    if (!last) return;
    finished_at = strand->now();
    senders.at(transfer)->finish();
  });
}

void Device::send(const ReceiveGrant& grant, const Endpoint& to, std::vector<uint32_t> from,
                  std::vector<size_t> runs, const std::function<void(SendJob&)>& change) {
  begin(grant, to, change);
  size_t n = 0;
  for (size_t at = 0; at < from.size();) {
    const size_t take = std::min(runs[std::min(n++, runs.size() - 1)], from.size() - at);
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(at);
    at += take;
    push(grant.transfer, {first, first + static_cast<std::ptrdiff_t>(take)}, at == from.size());
  }
}

void Device::stop(TransferId transfer) {
  auto over = std::make_shared<std::promise<void>>();
  auto quiet = over->get_future();
  on_strand(strand, [&] {
    if (senders.at(transfer)->stop([over] { over->set_value(); })) over->set_value();
  });
  CHECK(quiet.wait_for(kConformanceHang) == std::future_status::ready);
  on_strand(strand, [&] { senders.erase(transfer); });
}

void Device::forget(TransferId transfer) {
  const bool quiet = on_strand(strand, [&] { return receiver->forget(transfer); });
  if (quiet) return;
  CHECK(reached([&] { return std::ranges::count(stopped, transfer) == 1; }));
}

bool Device::reached(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kConformanceHang;
  while (std::chrono::steady_clock::now() < end) {
    if (on_strand(strand, condition)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

Status Device::sent(TransferId transfer) {
  CHECK(reached([&] { return done.contains(transfer); }));
  return on_strand(strand, [&] { return done.at(transfer); });
}

Status Device::received(TransferId transfer) {
  CHECK(reached([&] { return ended.contains(transfer); }));
  return on_strand(strand, [&] { return ended.at(transfer); });
}

std::vector<std::byte> Device::block(uint32_t b) {
  return on_strand(strand, [&] {
    const auto from = memory_.begin() + static_cast<std::ptrdiff_t>(b * shape.block_bytes);
    return std::vector(from, from + static_cast<std::ptrdiff_t>(shape.block_bytes));
  });
}

void Device::fill(uint32_t seed) {
  on_strand(strand, [&] {
    SeededRandom random(seed);
    for (size_t i = 0; i + 8 <= memory_.size(); i += 8) {
      const uint64_t word = random.next();
      std::copy_n(reinterpret_cast<const std::byte*>(&word), 8,
                  memory_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  });
}

}  // namespace headrace::worker
