#include "worker/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

constexpr size_t kDigestStep = size_t{4} << 20;

int64_t change_time(const struct stat& s) {
  return int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec;
}

Status system_error(const std::string& path, int error_number) {
  const Errc code = error_number == ENOENT ? Errc::kNotFound : Errc::kInvalid;
  return error(code, path + ": " + std::strerror(error_number));
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  // Without O_NONBLOCK a named pipe would keep us waiting for its writer.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return system_error(path, errno);
  struct stat s {};
  if (fstat(file.fd_, &s) != 0) return system_error(path, errno);
  if (S_ISDIR(s.st_mode)) return file.fault("is a directory, not a model file");
  if (!S_ISREG(s.st_mode)) return file.fault("is not a regular file");
  file.size_ = static_cast<uint64_t>(s.st_size);
  file.changed_ns_ = change_time(s);
  return file;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

InputFile::InputFile(InputFile&& o) noexcept
    : path_(std::move(o.path_)),
      fd_(std::exchange(o.fd_, -1)),
      size_(o.size_),
      changed_ns_(o.changed_ns_) {}

InputFile& InputFile::operator=(InputFile&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(fd_, o.fd_);
  std::swap(size_, o.size_);
  std::swap(changed_ns_, o.changed_ns_);
  return *this;
}

Status InputFile::read(uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset) return fault("ends too early");
  while (!to.empty()) {
    const ssize_t n = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path_, errno);
    if (n == 0) return fault("was cut while it was read");
    to = to.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status InputFile::unchanged() const {
  struct stat s {};
  if (fstat(fd_, &s) != 0) return system_error(path_, errno);
  if (static_cast<uint64_t>(s.st_size) != size_ || change_time(s) != changed_ns_)
    return fault("changed while it was read");
  return {};
}

Result<Digest> InputFile::digest(const std::function<void(uint64_t)>& progress) const {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  CHECK(state != nullptr);
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> buffer(std::min<uint64_t>(size_, kDigestStep));
  for (uint64_t at = 0; at < size_;) {
    const std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), size_ - at));
    if (Status s = read(at, part); !s.ok()) return s;
    XXH3_128bits_update(state.get(), part.data(), part.size());
    at += part.size();
    if (progress) progress(at);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return Digest{.hi = hash.high64, .lo = hash.low64};
}

Status InputFile::fault(std::string_view fault) const {
  std::string shown(fault.substr(0, kFaultBytesMax));
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  if (fault.size() > shown.size()) shown += "...";
  return error(Errc::kInvalid, path_ + ": " + shown);
}

}  // namespace headrace::worker
