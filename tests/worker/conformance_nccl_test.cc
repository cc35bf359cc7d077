#include <doctest/doctest.h>

#include <atomic>
#include <numeric>

#include "protocol/local_network.h"
#include "tests/worker/conformance.h"
#include "tests/worker/nccl_in_process.h"

namespace headrace::worker {
namespace {

struct NcclTransport {
  InProcessNccl nccl;
  AsioRuntime runtime{2};
  LocalNetwork network;
  std::atomic<uint64_t> devices = 0;
  Transport transport{network,
                      [this] { return runtime.make_strand(); },
                      {"nccl", 0},
                      true,
                      [this](const std::shared_ptr<Strand>& strand, uint64_t slot_bytes) {
                        NcclOptions options;
                        options.host = 1;
                        options.device = ++devices;
                        options.slot_bytes = static_cast<uint32_t>(slot_bytes);
                        return std::make_shared<InProcessLanes>(strand, nccl, options);
                      }};
};

TEST_CASE("nccl, blocks of a device, by way of lanes") {
  NcclTransport nccl;
  run_conformance(nccl.transport);
}

TEST_CASE("with a lane all KV goes over it, and as many streams as were asked for are one") {
  NcclTransport nccl;
  HandoffOptions options;
  options.streams = 4;
  Device p(nccl.transport, 1, {}, options);
  Device d(nccl.transport, 2, {}, options);
  std::vector<uint32_t> blocks(40);
  std::iota(blocks.begin(), blocks.end(), 0);
  uint64_t bytes = 0;
  for (int i = 0; i < 3; ++i) {
    const ReceiveGrant g =
        d.grant(40 * Device::kBlockTokens, [](uint32_t b) { return b * 37 % 64; });
    p.send(g, d.endpoint(), blocks, {1, 7, 2, 3});
    CHECK(p.sent(g.transfer).ok());
    CHECK(d.received(g.transfer).ok());
    bytes += 40 * p.shape.block_bytes;
    CHECK(nccl.nccl.bytes() == bytes);
    CHECK(on_strand(d.strand, [&] { return d.receiver->bytes_received(); }) == bytes);
    for (uint32_t b = 0; b < 40; ++b) CHECK(p.block(b) == d.block(b * 37 % 64));
  }
}

}  // namespace
}  // namespace headrace::worker
