#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "protocol/ids.h"
#include "protocol/result.h"

namespace headrace::worker {

// A large read-only file, read with pread and never mapped: a file that is cut or replaced while
// it is read gives an error and no SIGBUS. Reading may be shared between threads. Move-only.
//
// Every error is one line that begins with the path.
class InputFile {
 public:
  // kNotFound when there is none; kInvalid for anything that is not a regular file.
  static Result<InputFile> open(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& o) noexcept;
  InputFile& operator=(InputFile&& o) noexcept;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // Fills `to` from `offset`; kInvalid if the file ends before.
  Status read(uint64_t offset, std::span<std::byte> to) const;
  // Fails if size or time of change are no longer those at opening.
  Status unchanged() const;
  // XXH3-128 of the whole file. `progress` gets bytes read so far, some times a second.
  Result<Digest> digest(const std::function<void(uint64_t)>& progress = {}) const;

  // kInvalid, with the path before `fault`. Names in it may be a file's own words: what does not
  // print becomes '?', and it is cut at kFaultBytesMax.
  static constexpr size_t kFaultBytesMax = 400;
  Status fault(std::string_view fault) const;

 private:
  InputFile() = default;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t changed_ns_ = 0;  // modification time at opening
};

}  // namespace headrace::worker
