// How fast KV goes from one worker to another over TCP on this machine, beside what the machine
// itself does: memory copied, checksums made, a bare socket. Prints one line each; GB/s of wall
// time, and GB for each second that the busier of both ends was on a core.
//
//   handoff_bench [MiB a hand-off, 256] [KiB a block, 768]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <thread>

#include "tests/worker/conformance.h"
#include "worker/crc32c.h"

namespace headrace::worker {
namespace {

constexpr int kRounds = 5;  // the best counts: others may use the machine

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Best {
  double wall = 1e9;
  double cpu = 1e9;
  void see(double w, double c) {
    wall = std::min(wall, w);
    cpu = std::min(cpu, c);
  }
  void print(const char* what, size_t bytes) const {
    const double gb = static_cast<double>(bytes) / 1e9;
    std::printf("%-46s %7.2f GB/s %7.2f GB per core second\n", what, gb / wall, gb / cpu);
  }
};

void copies(size_t bytes) {
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  Best copy;
  Best sum;
  uint32_t crc = 0;
  for (int i = 0; i < kRounds; ++i) {
    const double w = wall_seconds();
    const double c = cpu_seconds();
    std::memcpy(to.data(), from.data(), bytes);
    copy.see(wall_seconds() - w, cpu_seconds() - c);
    const double w2 = wall_seconds();
    const double c2 = cpu_seconds();
    crc = crc32c(to, crc);
    sum.see(wall_seconds() - w2, cpu_seconds() - c2);
  }
  copy.print("memcpy", bytes);
  sum.print(crc == 1 ? "CRC-32C " : "CRC-32C", bytes);
}

int check(int result, const char* what) {
  if (result >= 0) return result;
  std::perror(what);
  std::exit(1);
}

// One thread writes, one reads, a MiB at a time.
void bare_socket(size_t bytes) {
  const int door = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  check(bind(door, reinterpret_cast<sockaddr*>(&at), sizeof at), "bind");
  check(listen(door, 1), "listen");
  check(getsockname(door, reinterpret_cast<sockaddr*>(&at), &length), "getsockname");
  const int out = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
  check(connect(out, reinterpret_cast<sockaddr*>(&at), sizeof at), "connect");
  const int in = check(accept(door, nullptr, nullptr), "accept");
  constexpr size_t kPiece = size_t{1} << 20;
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  Best best;
  for (int i = 0; i < kRounds; ++i) {
    const double w = wall_seconds();
    double writing = 0;
    std::thread writer([&] {
      const double c = cpu_seconds();
      for (size_t n = 0; n < bytes;)
        n += static_cast<size_t>(check(
            static_cast<int>(send(out, from.data() + n, std::min(kPiece, bytes - n), 0)), "send"));
      writing = cpu_seconds() - c;
    });
    const double c = cpu_seconds();
    for (size_t n = 0; n < bytes;)
      n += static_cast<size_t>(
          check(static_cast<int>(recv(in, to.data() + n, std::min(kPiece, bytes - n), 0)), "recv"));
    const double reading = cpu_seconds() - c;
    writer.join();
    best.see(wall_seconds() - w, std::max(reading, writing));
  }
  best.print("a socket of loopback, no CRC", bytes);
  close(in);
  close(out);
  close(door);
}

// A byte at a time would be fair to nobody: the sum as one stream of the instruction makes it.
uint32_t one_stream(std::span<const std::byte> bytes, uint32_t before) {
  constexpr size_t kShort = size_t{16} << 10;  // below what three streams want
  for (size_t at = 0; at < bytes.size(); at += kShort)
    before = crc32c(bytes.subspan(at, std::min(kShort, bytes.size() - at)), before);
  return before;
}

// The same slices, copied into a frame here and out of it there.
void framed(size_t bytes) {
  AsioRuntime here;
  AsioRuntime there;
  AsioNetwork p_network(here);
  AsioNetwork d_network(there);
  const auto p = here.make_strand();
  const auto d = there.make_strand();
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  size_t sent = 0;
  size_t got = 0;
  uint32_t sums[2] = {};
  std::unique_ptr<Link> out;
  std::unique_ptr<Link> in;
  std::promise<void> up;
  std::promise<void> over;
  auto door = on_strand(d, [&] {
    return d_network.listen({"127.0.0.1", 0}, {}, d, [&](std::unique_ptr<Link> link) {
      in = std::move(link);
      in->start(
          [&](const Bytes& frame) {
            const auto slice = std::get<handoff::Slice>(*decode_handoff(frame));
            std::ranges::copy(slice.bytes, to.begin() + static_cast<std::ptrdiff_t>(got % bytes));
            sums[1] = one_stream(slice.bytes, sums[1]);
            got += slice.bytes.size();
            if (got % bytes == 0) over.set_value();
          },
          [](const Status&) {});
    });
  });
  p_network.dial((*door)->endpoint(), 5s, {}, p, [&](auto link) {
    out = std::move(*link);
    out->start([](const Bytes&) {}, [](const Status&) {});
    up.set_value();
  });
  up.get_future().wait();
  const auto pump = [&] {
    while (sent < bytes && out->unsent() < size_t{4} << 20) {
      const auto slice = std::span(from).subspan(sent, std::min(kSliceBytesMax, bytes - sent));
      out->send(encode_handoff(handoff::Slice{0, 0, {}, 0, slice}));
      sums[0] = one_stream(slice, sums[0]);
      sent += slice.size();
    }
  };
  on_strand(p, [&] { out->on_drained(size_t{2} << 20, pump); });
  Best best;
  for (int i = 0; i < kRounds; ++i) {
    const double writing = on_strand(p, [] { return cpu_seconds(); });
    const double reading = on_strand(d, [] { return cpu_seconds(); });
    const double w = wall_seconds();
    on_strand(p, [&] {
      sent = 0;
      pump();
    });
    over.get_future().wait();
    const double took = wall_seconds() - w;
    best.see(took, std::max(on_strand(p, [] { return cpu_seconds(); }) - writing,
                            on_strand(d, [] { return cpu_seconds(); }) - reading));
    on_strand(d, [&] { over = {}; });
  }
  if (sums[0] != sums[1]) std::abort();
  best.print("copied into frames and out, CRC of one stream", bytes);
  on_strand(p, [&] { out = nullptr; });
  on_strand(d, [&] {
    in = nullptr;
    door = error(Errc::kCancelled, "over");
  });
}

// `run`: blocks of a chunk.
void hand_off(size_t bytes, size_t block_bytes, size_t run, const char* what) {
  const auto blocks = static_cast<uint32_t>(bytes / block_bytes);
  AsioRuntime here;
  AsioRuntime there;
  AsioNetwork p_network(here);
  AsioNetwork d_network(there);
  const Endpoint home{"127.0.0.1", 0};
  const DeviceShape shape{block_bytes, blocks};
  Device p({p_network, [&] { return here.make_strand(); }, home}, 1, shape);
  Device d({d_network, [&] { return there.make_strand(); }, home}, 2, shape);
  std::vector<uint32_t> all(blocks);
  std::iota(all.begin(), all.end(), 0u);
  Best best;
  for (int i = 0; i < kRounds; ++i) {
    const ReceiveGrant g =
        d.grant(blocks * Device::kBlockTokens, [](uint32_t block) { return block; });
    const double writing = on_strand(p.strand, [] { return cpu_seconds(); });
    const double reading = on_strand(d.strand, [] { return cpu_seconds(); });
    const double w = wall_seconds();
    p.send(g, d.endpoint(), all, {run});
    if (!p.sent(g.transfer).ok()) std::abort();
    const double took = wall_seconds() - w;
    best.see(took, std::max(on_strand(p.strand, [] { return cpu_seconds(); }) - writing,
                            on_strand(d.strand, [] { return cpu_seconds(); }) - reading));
  }
  best.print(what, blocks * block_bytes);
}

// Chunks as a prefill completes them, one each 20 ms: what is left to do after the last one, beside
// a hand-off of that chunk alone.
void overlapped(size_t block_bytes) {
  constexpr uint32_t kRun = 16;
  constexpr uint32_t kChunks = 8;
  AsioRuntime here;
  AsioRuntime there;
  AsioNetwork p_network(here);
  AsioNetwork d_network(there);
  const Endpoint home{"127.0.0.1", 0};
  const DeviceShape shape{block_bytes, kRun * kChunks};
  Device p({p_network, [&] { return here.make_strand(); }, home}, 1, shape);
  Device d({d_network, [&] { return there.make_strand(); }, home}, 2, shape);
  const auto measure = [&](uint32_t chunks) {
    double best = 1e9;
    for (int i = 0; i < kRounds; ++i) {
      const ReceiveGrant g =
          d.grant(kRun * chunks * Device::kBlockTokens, [](uint32_t block) { return block; });
      p.begin(g, d.endpoint());
      if (!d.reached([&] { return d.began.size() > 0 && d.began.back() == g.transfer; }))
        std::abort();
      for (uint32_t c = 0; c < chunks; ++c) {
        std::this_thread::sleep_for(20ms);
        std::vector<uint32_t> run(kRun);
        std::iota(run.begin(), run.end(), c * kRun);
        p.push(g.transfer, run, c + 1 == chunks);
      }
      if (!p.sent(g.transfer).ok()) std::abort();
      best = std::min(best, std::chrono::duration<double>(on_strand(p.strand, [&] {
                              return p.done_at - p.finished_at;
                            })).count());
    }
    return best * 1e3;
  };
  const double alone = measure(1);
  const double last = measure(kChunks);
  std::printf("after the last of %u chunks of %zu MiB: %.2f ms; one such chunk alone: %.2f ms\n",
              kChunks, kRun * block_bytes >> 20, last, alone);
}

}  // namespace
}  // namespace headrace::worker

int main(int argc, char** argv) {
  const size_t bytes = (argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 256) << 20;
  const size_t block = (argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 768) << 10;
  if (block == 0 || bytes < block || bytes > (size_t{2} << 30)) {
    std::fprintf(stderr, "handoff_bench [MiB, at most 2048] [KiB a block]\n");
    return 1;
  }
  headrace::worker::copies(bytes);
  headrace::worker::bare_socket(bytes);
  headrace::worker::framed(bytes);
  headrace::worker::hand_off(bytes, block, bytes / block, "a hand-off, one chunk");
  headrace::worker::hand_off(bytes, block, 16, "a hand-off, chunks of 16 blocks");
  headrace::worker::overlapped(block);
  return 0;
}
