#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/asio_runtime.h"
#include "tests/sim/sim_copies.h"
#include "worker/handoff_receiver.h"
#include "worker/handoff_sender.h"

namespace headrace::worker {

// What every way of a hand-off must keep, in real time and with real threads: one list of cases
// (run_conformance) for each transport.
struct Transport {
  Network& network;
  std::function<std::shared_ptr<Strand>()> strand;
  Endpoint home;        // where to listen
  bool staged = false;  // blocks are a simulated device's
  // What moves slots beside the channels, or none.
  std::function<std::shared_ptr<LaneSource>(const std::shared_ptr<Strand>&, uint64_t slot_bytes)>
      lanes = {};
};

// Against hanging; no case passes or fails by how long something took.
constexpr Duration kConformanceHang = 120s;

template <class F>
auto on_strand(const std::shared_ptr<Strand>& strand, F f) {
  std::packaged_task<decltype(f())()> task(std::move(f));
  auto result = task.get_future();
  strand->post(std::move(task));
  if (result.wait_for(kConformanceHang) != std::future_status::ready) std::abort();
  return result.get();
}

struct DeviceShape {
  uint64_t block_bytes = 4096;
  uint32_t blocks = 64;
};

// One worker as far as hand-offs go: blocks, a receiver, any number of senders, one strand. Members
// belong to the strand; the functions are for the test's own thread.
class Device {
 public:
  static constexpr uint32_t kBlockTokens = 16;
  static inline const Digest kLayout{5, 6};

  Device(const Transport& transport, uint64_t id, DeviceShape shape, HandoffOptions options = {});
  ~Device();
  Device(const Device&) = delete;

  // Grants `tokens` of a new transfer in blocks chosen by `place`.
  ReceiveGrant grant(uint32_t tokens, const std::function<uint32_t(uint32_t)>& place,
                     uint32_t first_block = 0);
  // Sends blocks `from` for a grant of another's, in runs of these sizes (the last one repeats).
  void send(const ReceiveGrant& grant, const Endpoint& to, std::vector<uint32_t> from,
            std::vector<size_t> runs, const std::function<void(SendJob&)>& change = {});
  // Begins to send as above, but pushes nothing.
  void begin(const ReceiveGrant& grant, const Endpoint& to,
             const std::function<void(SendJob&)>& change = {});
  void push(TransferId transfer, std::vector<uint32_t> from, bool last);
  // Stops sending, waits until no block is read any more.
  void stop(TransferId transfer);
  // Forgets the grant, waits until no block is written any more.
  void forget(TransferId transfer);
  void freeze(bool on) {
    on_strand(strand, [&] { sweeps = !on; });
  }
  void restart();  // another incarnation behind the same endpoint, without grants

  Status sent(TransferId transfer);      // waits for it
  Status received(TransferId transfer);  // waits for it
  bool reached(const std::function<bool()>& condition);
  std::vector<std::byte> block(uint32_t b);
  void fill(uint32_t seed);
  Endpoint endpoint() {
    return on_strand(strand, [&] { return receiver->endpoint(); });
  }

  const DeviceShape shape;
  const Incarnation incarnation;
  const std::shared_ptr<Strand> strand;
  std::unique_ptr<HandoffReceiver> receiver;
  std::map<TransferId, std::unique_ptr<HandoffSender>> senders;
  std::map<TransferId, Status> done;   // of senders
  std::map<TransferId, Status> ended;  // of the receiver
  Instant finished_at{};               // the last push, of any
  Instant done_at{};                   // the last end of a sender
  std::vector<TransferId> began;
  std::vector<TransferId> stopped;
  HandoffOptions options;

 private:
  void listen(const Endpoint& at);
  void sweep();
  BlockMemory memory();

  Network& network_;
  const bool staged_;
  uint64_t transfers_ = 0;
  uint32_t lives_ = 1;
  bool sweeps = true;
  std::vector<std::byte> memory_;
  sim::SimCopies copies_;
  std::unique_ptr<BlockStage> stage_;
  const decltype(Transport::lanes) make_lanes_;
  std::shared_ptr<LaneSource> lanes_;
  Timer timer_;
};

// All cases; each is a doctest subcase.
void run_conformance(const Transport& transport);

}  // namespace headrace::worker
