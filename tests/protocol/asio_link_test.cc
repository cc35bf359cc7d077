#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "protocol/asio_runtime.h"
#include "protocol/random.h"
#include "tests/protocol/link_rules.h"

namespace headrace {
namespace {

// A plain socket that says whatever a hostile or broken peer might say to a Link.
struct Stranger {
  explicit Stranger(LinkLimits limits = {}) : side(runtime.make_strand()) {
    AsioNetwork network(runtime);
    auto opened = network.listen({"127.0.0.1", 0}, limits, side.strand, [this](auto link) {
      side.adopt(std::move(link));
      accepted.set_value();
    });
    REQUIRE(opened);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((*opened)->endpoint().port);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const int no_delay = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
    REQUIRE(accepted.get_future().wait_for(kHang) == std::future_status::ready);
    on(side.strand, [&] { *opened = nullptr; });
    side.start();
  }
  ~Stranger() {
    if (fd >= 0) close(fd);
  }

  bool say(const Bytes& bytes) {
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // The end of the link as the side saw it.
  Status closed() {
    REQUIRE(eventually(side.strand, [this] { return !side.closed.empty(); }));
    CHECK(side.closed.size() == 1);
    return side.closed[0];
  }

  AsioRuntime runtime{1};
  std::promise<void> accepted;
  int fd = -1;
  Side side;
};

Bytes framed(uint32_t size, const Bytes& body) {
  Bytes bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(size >> (8 * i)));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

TEST_CASE("an announced giant is refused before anything is allocated") {
  Stranger stranger({.frame_bytes_max = 1000});
  CHECK(stranger.say(framed(0xFFFFFFFF, {})));
  const Status why = stranger.closed();
  CHECK(why.code == Errc::kInvalid);
  CHECK(why.message.find("frame of 4294967295 bytes, the limit is 1000") !=
        std::string::npos);
}

TEST_CASE("a first frame has its own limit, and comes whole though memory for it grows") {
  Stranger giant({.first_frame_bytes_max = 1000});
  CHECK(giant.say(framed(1001, {})));
  CHECK(giant.closed().message.find("first frame of 1001 bytes, the limit is 1000") !=
        std::string::npos);
  Stranger stranger({.first_frame_bytes_max = 300'000});
  const Bytes first = pattern(300'000, 1);
  const Bytes second = pattern(400'000, 2);
  for (const Bytes& body : {first, second})
    CHECK(stranger.say(framed(static_cast<uint32_t>(body.size()), body)));
  REQUIRE(eventually(stranger.side.strand, [&] { return stranger.side.frames.size() == 2; }));
  CHECK(stranger.side.frames[0] == first);
  CHECK(stranger.side.frames[1] == second);
}

TEST_CASE("frames that come byte by byte, or many at once, are the same frames") {
  Stranger stranger;
  Bytes all;
  for (int i = 0; i < 5; ++i) {
    const Bytes frame =
        framed(static_cast<uint32_t>(i * 3), pattern(static_cast<size_t>(i * 3), i));
    all.insert(all.end(), frame.begin(), frame.end());
  }
  for (std::byte b : all) CHECK(stranger.say({b}));
  CHECK(stranger.say(all));
  auto& side = stranger.side;
  REQUIRE(eventually(side.strand, [&] { return side.frames.size() == 10; }));
  for (size_t i = 0; i < 10; ++i)
    CHECK(side.frames[i] == pattern((i % 5) * 3, static_cast<int>(i % 5)));
}

TEST_CASE("a frame that stops growing ends the link at its deadline") {
  Stranger stranger({.frame_deadline = 50ms});
  SUBCASE("inside its body") { CHECK(stranger.say(framed(100, pattern(10, 1)))); }
  SUBCASE("inside its length") { CHECK(stranger.say(Bytes(2))); }
  SUBCASE("inside a long body") { CHECK(stranger.say(framed(1u << 20, pattern(1000, 1)))); }
  const Status why = stranger.closed();
  CHECK(why.code == Errc::kDeadline);
  CHECK(why.message.find("no progress inside a frame for 50 ms") == 0);
}

TEST_CASE("a silent link without a begun frame has no deadline") {
  Stranger stranger({.frame_deadline = 10ms});
  CHECK(stranger.say(framed(3, pattern(3, 1))));
  std::this_thread::sleep_for(60ms);
  CHECK(stranger.say(framed(3, pattern(3, 2))));
  auto& side = stranger.side;
  CHECK(eventually(side.strand, [&] { return side.frames.size() == 2; }));
  CHECK(side.open());
}

TEST_CASE("a half-closed peer is a closed peer") {
  Stranger stranger;
  CHECK(stranger.say(framed(3, pattern(3, 1))));
  SUBCASE("between frames") {
    shutdown(stranger.fd, SHUT_WR);
    const Status why = stranger.closed();
    CHECK(why.code == Errc::kDisconnected);
    CHECK(why.message.find("closed the link") != std::string::npos);
    CHECK(why.message.find("inside a frame") == std::string::npos);
  }
  SUBCASE("inside a frame") {
    CHECK(stranger.say(framed(30, pattern(3, 1))));
    shutdown(stranger.fd, SHUT_WR);
    CHECK(stranger.closed().message.find("closed the link inside a frame") != std::string::npos);
  }
  CHECK(stranger.side.frames.size() == 1);
}

TEST_CASE("a reset is a closing, and writing into it raises no signal") {
  Stranger stranger;
  const linger hard{1, 0};
  setsockopt(stranger.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close(std::exchange(stranger.fd, -1));
  on(stranger.side.strand, [&] {
    for (int i = 0; i < 10; ++i) stranger.side.link->send(pattern(1000, i));
  });
  CHECK(stranger.closed().code == Errc::kDisconnected);
}

TEST_CASE("a peer that does not read ends the link at the frame deadline") {
  Stranger stranger({.frame_deadline = 100ms});
  on(stranger.side.strand, [&] {
    for (int i = 0; i < 32; ++i) stranger.side.link->send(pattern(1u << 20, i));
  });
  CHECK(stranger.closed().code == Errc::kDeadline);
}

TEST_CASE("a closed link that the peer does not drain lets go at the deadline") {
  Stranger stranger({.frame_deadline = 100ms});
  on(stranger.side.strand, [&] {
    for (int i = 0; i < 32; ++i) stranger.side.link->send(pattern(1u << 20, i));
    stranger.side.link->close();
  });
  // The far end sees an end in bounded time: what had gone out, then the closing.
  Bytes buffer(1u << 16);
  std::this_thread::sleep_for(300ms);
  timeval guard{60, 0};
  setsockopt(stranger.fd, SOL_SOCKET, SO_RCVTIMEO, &guard, sizeof guard);
  ssize_t n = 0;
  size_t total = 0;
  while ((n = recv(stranger.fd, buffer.data(), buffer.size(), 0)) > 0)
    total += static_cast<size_t>(n);
  CHECK(total < (32u << 20));
  CHECK((n == 0 || errno == ECONNRESET));
  CHECK(stranger.side.open());
}

TEST_CASE("last words before a closing are read even when our own words fail") {
  for (int round = 0; round < 20; ++round) {
    Stranger stranger;
    CHECK(stranger.say(framed(5, pattern(5, round))));
    shutdown(stranger.fd, SHUT_RDWR);
    close(std::exchange(stranger.fd, -1));
    on(stranger.side.strand, [&] {
      for (int i = 0; i < 20; ++i) stranger.side.link->send(pattern(100, i));
    });
    CHECK(stranger.closed().code == Errc::kDisconnected);
    CHECK(stranger.side.frames == std::vector<Bytes>{pattern(5, round)});
  }
}

TEST_CASE("any bytes: frames or one clear closing") {
  SeededRandom random(11);
  for (int round = 0; round < 50; ++round) {
    Stranger stranger({.frame_bytes_max = 4096, .frame_deadline = 200ms});
    Bytes noise(random.next() % 3000);
    for (auto& b : noise) b = static_cast<std::byte>(random.next() % (round % 3 == 0 ? 2 : 256));
    (void)stranger.say(noise);
    shutdown(stranger.fd, SHUT_WR);
    const Status why = stranger.closed();
    CHECK((why.code == Errc::kInvalid || why.code == Errc::kDisconnected));
  }
}

}  // namespace
}  // namespace headrace
