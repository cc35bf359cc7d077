#include "deploy/cli/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

namespace headrace::cli {

struct LineWriter::Shared {
  // A number of its own: what is written late must not reach a file that got the old one.
  explicit Shared(int stream) : descriptor(fcntl(stream, F_DUPFD_CLOEXEC, 0)) {}
  ~Shared() {
    if (descriptor >= 0) close(descriptor);
  }
  Shared(const Shared&) = delete;

  const int descriptor;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> waiting;
  size_t bytes = 0;       // of `waiting`
  uint64_t left_out = 0;  // since the last of `waiting`
  bool writing = false;   // the thread holds lines of its own
  bool over = false;

  bool idle() const { return waiting.empty() && left_out == 0 && !writing; }
};

namespace {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {  // whoever shares it has made it so
      pollfd room{descriptor, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      return;
    }
  }
}

}  // namespace

LineWriter::LineWriter(int descriptor) : shared_(std::make_shared<Shared>(descriptor)) {
  // Signals go to the threads that were there before.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = shared_] { run(*shared); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineWriter::~LineWriter() {
  flush(kFlushWithin);
  const std::lock_guard lock(shared_->mutex);
  shared_->over = true;
  shared_->changed.notify_all();
}

void LineWriter::write(std::string text) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->left_out > 0 || shared_->waiting.size() >= kWaitingMax ||
      shared_->bytes + text.size() > kBytesMax) {
    ++shared_->left_out;
    return;
  }
  shared_->bytes += text.size();
  shared_->waiting.push_back(std::move(text));
  shared_->changed.notify_all();
}

bool LineWriter::flush(std::chrono::milliseconds within) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, within, [this] { return shared_->idle(); });
}

void LineWriter::run(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return !shared.idle() || shared.over; });
    if (shared.over) return;
    std::deque<std::string> lines = std::exchange(shared.waiting, {});
    const uint64_t left_out = std::exchange(shared.left_out, 0);
    shared.bytes = 0;
    shared.writing = true;
    lock.unlock();
    for (const std::string& line : lines) write_all(shared.descriptor, line);
    if (left_out > 0)
      write_all(shared.descriptor, "headrace: " + std::to_string(left_out) +
                                       " lines were left out: nobody read standard error, and " +
                                       std::to_string(kWaitingMax) + " waited, the limit\n");
    lock.lock();
    shared.writing = false;
    shared.changed.notify_all();
  }
}

}  // namespace headrace::cli
