#include "protocol/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

namespace headrace {
namespace {

constexpr Duration kLockRetry = 10ms;

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  bool reset() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

Status failed(const std::string& doing, const std::string& path) {
  const int code = errno;
  return error(code == ENOENT ? Errc::kNotFound : Errc::kInternal,
               "cannot " + doing + " " + path + ": " + std::strerror(code));
}

class OsLock final : public FileLock {
 public:
  explicit OsLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  Descriptor fd_;  // closing it frees the lock
};

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

// Makes the rename itself survive a loss of power.
void sync_directory_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  Descriptor fd(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.open()) ::fsync(fd.get());
}

}  // namespace

Result<Bytes> OsFiles::read(const std::string& path, size_t bytes_max) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.open()) return failed("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return failed("read", path);
  if (!S_ISREG(info.st_mode))
    return error(Errc::kInvalid, "cannot read " + path + ": not a regular file");
  const auto too_long = [&] {
    return error(Errc::kOverloaded, "cannot read " + path + ": longer than the limit of " +
                                        std::to_string(bytes_max) + " bytes");
  };
  if (static_cast<uint64_t>(info.st_size) > bytes_max) return too_long();
  // One spare byte shows whether it grew meanwhile.
  Bytes bytes(static_cast<size_t>(info.st_size) + 1);
  size_t have = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", path);
    have += static_cast<size_t>(n);
    if (n == 0) break;
    if (have > bytes_max) return too_long();
    if (have == bytes.size()) bytes.resize(bytes.size() + 4096);
  }
  bytes.resize(have);
  return bytes;
}

Status OsFiles::write(const std::string& path, std::span<const std::byte> bytes) {
  std::string temporary = path + ".XXXXXX";
  Descriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.open()) return failed("write", path);
  const bool written = write_all(fd.get(), bytes) && ::fchmod(fd.get(), 0644) == 0 &&
                       ::fsync(fd.get()) == 0 && fd.reset() &&
                       ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!written) {
    Status status = failed("write", path);
    ::unlink(temporary.c_str());
    return status;
  }
  sync_directory_of(path);
  return {};
}

Status OsFiles::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return failed("remove", path);
}

Status OsFiles::make_directory(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (!code && std::filesystem::is_directory(path, code)) return {};
  return error(Errc::kInternal, "cannot make the directory " + path + ": " +
                                    (code ? code.message() : "something else has that name"));
}

Result<std::unique_ptr<FileLock>> OsFiles::lock(const std::string& path, Duration deadline) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.open()) return failed("lock", path);
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed("lock", path);
    if (std::chrono::steady_clock::now() >= end) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline);
      return error(Errc::kDeadline, "cannot lock " + path + ": held by another process for " +
                                        std::to_string(ms.count()) + " ms");
    }
    std::this_thread::sleep_for(kLockRetry);
  }
  return std::unique_ptr<FileLock>(std::make_unique<OsLock>(std::move(fd)));
}

}  // namespace headrace
