#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tests/simt/nccl/comm.h"

namespace headrace::simt::nccl {
namespace {

constexpr int kBacklog = 64;
constexpr size_t kStepBytes = 256 * 1024;  // at most at a time, so that others move too

struct Head {
  uint64_t bytes;
  int64_t type;
};

socklen_t address(const std::string& id, int rank, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  // From the second byte: a name that needs no file and goes with its socket.
  std::string name = "headrace-nccl-" + std::to_string(rank) + "-";
  for (unsigned char c : id) name += char('a' + c / 16), name += char('a' + c % 16);
  std::memcpy(out->sun_path + 1, name.data(), name.size());
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

int fresh() { return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

bool later() { return errno == EAGAIN || errno == EINTR; }

// Moves bytes of a part that begins at `begin` of the transfer's whole; false at its end or when
// nothing moves.
Transfer::Result move(Transfer& t, int fd, bool out, char* part, size_t begin, size_t bytes) {
  const size_t at = t.done - begin;
  const size_t n = std::min(bytes - at, kStepBytes);
  const ssize_t moved = out ? send(fd, part + at, n, MSG_NOSIGNAL) : recv(fd, part + at, n, 0);
  if (moved > 0) return t.done += size_t(moved), Transfer::Result::kMoved;
  return moved < 0 && later() ? Transfer::Result::kStuck : Transfer::Result::kGone;
}

}  // namespace

int listen_as(const std::string& id, int rank) {
  sockaddr_un where;
  const socklen_t length = address(id, rank, &where);
  const int fd = fresh();
  if (bind(fd, reinterpret_cast<sockaddr*>(&where), length) == 0 && listen(fd, kBacklog) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

int connect_to(const std::string& id, int rank) {
  sockaddr_un where;
  const socklen_t length = address(id, rank, &where);
  const int fd = fresh();
  if (connect(fd, reinterpret_cast<sockaddr*>(&where), length) == 0) return fd;
  close(fd);
  return -1;
}

bool say(int fd, const Hello& hello) {
  return send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == ssize_t(sizeof hello);
}

Heard hear(int fd, Hello* hello) {
  const ssize_t n = recv(fd, hello, sizeof *hello, MSG_PEEK);
  if (n == ssize_t(sizeof *hello)) {
    return recv(fd, hello, sizeof *hello, 0) == n ? Heard::kHello : Heard::kGone;
  }
  return n > 0 || (n < 0 && later()) ? Heard::kNotYet : Heard::kGone;
}

Transfer::Result Transfer::step(int fd, Behaviour& behaviour) {
  if (send && behaviour.stall_send) return Result::kStuck;
  Head head{bytes, type};
  const size_t head_end = sizeof head, data_end = head_end + bytes;
  if (!send && done < head_end) {
    // The head is looked at before it is taken: it may come in parts.
    Head heard{};
    const ssize_t n = recv(fd, &heard, sizeof heard, MSG_PEEK);
    if (n == 0 || (n < 0 && !later())) return Result::kGone;
    if (n < ssize_t(sizeof heard)) return Result::kStuck;
    if (heard.bytes != head.bytes || heard.type != head.type) return Result::kMismatch;
    if (recv(fd, &heard, sizeof heard, 0) != n) return Result::kGone;
    done = head_end;
  }
  const size_t before = done;
  Result result;
  char answer = 1;
  if (done < head_end) {
    result = move(*this, fd, true, reinterpret_cast<char*>(&head), 0, sizeof head);
  } else if (done < data_end) {
    result = move(*this, fd, send, data, head_end, bytes);
  } else {
    result = move(*this, fd, !send, &answer, data_end, 1);
    if (result == Result::kMoved) return Result::kDone;
  }
  if (send && behaviour.die_after) {
    if (done - before >= behaviour.die_after) _exit(9);
    behaviour.die_after -= done - before;
  }
  return result;
}

}  // namespace headrace::simt::nccl
