#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "protocol/link.h"
#include "protocol/result.h"
#include "protocol/strand.h"

namespace headrace {

// Held until destroyed, or until the process ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// State files: small, read and written whole. Calls block (and only these do): used at start and at
// the end, never while tokens flow. Every error names the path. Real body: OsFiles; simulated:
// tests/sim.
class Files {
 public:
  virtual ~Files() = default;
  // kNotFound; kOverloaded when longer than `bytes_max` (nothing is read then).
  virtual Result<Bytes> read(const std::string& path, size_t bytes_max) = 0;
  // The file holds the old bytes or the new ones, never a mixture, also after a crash.
  virtual Status write(const std::string& path, std::span<const std::byte> bytes) = 0;
  virtual Status remove(const std::string& path) = 0;  // ok when there is none
  // With its parents; ok when it exists.
  virtual Status make_directory(const std::string& path) = 0;
  // Excludes every other holder on this machine. kDeadline when it stays taken for that long.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path, Duration deadline) = 0;
};

class OsFiles final : public Files {
 public:
  Result<Bytes> read(const std::string& path, size_t bytes_max) override;
  Status write(const std::string& path, std::span<const std::byte> bytes) override;
  Status remove(const std::string& path) override;
  Status make_directory(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, Duration deadline) override;
};

}  // namespace headrace
