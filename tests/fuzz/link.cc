// A byte stream of a mesh or KV peer: a real link over a socket pair delivers exactly the frames
// that the bytes hold, and closes where they break the rules.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <memory>
#include <vector>

#include "protocol/asio_core.h"
#include "tests/fuzz/input.h"

namespace headrace {
namespace {

constexpr size_t kFrameMax = 2000;
constexpr size_t kFirstMax = 1200;

struct Heard {
  std::vector<Bytes> frames;
  std::promise<Status> closed;
};

// The frames that lie in the bytes up to the first that is too long or not whole.
std::vector<Bytes> rightful(std::span<const uint8_t> bytes) {
  std::vector<Bytes> frames;
  while (bytes.size() >= 4) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data(), 4);
    if (size > (frames.empty() ? kFirstMax : kFrameMax) || size > bytes.size() - 4) break;
    const auto body = std::as_bytes(bytes.subspan(4, size));
    frames.emplace_back(body.begin(), body.end());
    bytes = bytes.subspan(4 + size);
  }
  return frames;
}

void write_all(int fd, std::span<const uint8_t> bytes, size_t piece) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(piece, bytes.size()));
    const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the link has closed
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void feed(AsioRuntime& runtime, std::span<const uint8_t> bytes, size_t piece) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const auto strand = asio_strand(runtime.make_strand());
  auto heard = std::make_shared<Heard>();
  auto closed = heard->closed.get_future();
  std::promise<std::unique_ptr<Link>> made;
  strand->post([&] {
    Socket socket(strand->executor());
    socket.assign(asio::ip::tcp::v4(), ends[0]);
    auto link = make_asio_link(strand, std::move(socket),
                               {.frame_bytes_max = kFrameMax, .first_frame_bytes_max = kFirstMax});
    link->start([heard](Bytes frame) { heard->frames.push_back(std::move(frame)); },
                [heard](Status why) { heard->closed.set_value(std::move(why)); });
    made.set_value(std::move(link));
  });
  std::unique_ptr<Link> link = made.get_future().get();
  write_all(ends[1], bytes, piece);
  ::shutdown(ends[1], SHUT_WR);
  CHECK(!closed.get().ok());
  CHECK(heard->frames == rightful(bytes));
  link.reset();
  ::close(ends[1]);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static headrace::AsioRuntime runtime(1);
  headrace::fuzz::Input input(data, size);
  const size_t piece = input.byte() + size_t{1};
  headrace::feed(runtime, input.take(input.left()), piece < 200 ? piece : size);
  return 0;
}
