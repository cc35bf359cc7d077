#pragma once

#include <memory>
#include <string>

#include "protocol/files.h"
#include "tests/sim/sim_world.h"

namespace headrace::sim {

// The files of one simulated machine. Written bytes survive the death of a process, its locks do
// not. Waiting for a lock would stop the world: a taken one is refused at once.
class SimFiles final : public Files {
 public:
  SimFiles(std::shared_ptr<SimLife> life, std::string machine)
      : life_(std::move(life)), machine_(std::move(machine)) {}
  Result<Bytes> read(const std::string& path, size_t bytes_max) override;
  Status write(const std::string& path, std::span<const std::byte> bytes) override;
  Status remove(const std::string& path) override;
  Status make_directory(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, Duration deadline) override;

 private:
  std::shared_ptr<SimLife> life_;
  std::string machine_;
};

}  // namespace headrace::sim
