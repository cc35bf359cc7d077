#include "tests/sim/sim_files.h"

namespace headrace::sim {
namespace {

class SimLock final : public FileLock {
 public:
  SimLock(std::shared_ptr<SimLife> life, std::string machine, std::string path)
      : life_(std::move(life)), machine_(std::move(machine)), path_(std::move(path)) {}
  ~SimLock() override {
    if (!life_->world) return;
    auto& locks = life_->world->disk(machine_).locks;
    const auto found = locks.find(path_);
    if (found != locks.end() && found->second == life_) locks.erase(found);
  }

 private:
  std::shared_ptr<SimLife> life_;
  std::string machine_;
  std::string path_;
};

Status dead() { return error(Errc::kInternal, "the process is dead"); }

}  // namespace

Result<Bytes> SimFiles::read(const std::string& path, size_t bytes_max) {
  if (!life_->alive) return dead();
  const auto& files = life_->world->disk(machine_).files;
  const auto found = files.find(path);
  if (found == files.end())
    return error(Errc::kNotFound, "cannot open " + path + ": No such file or directory");
  if (found->second.size() > bytes_max)
    return error(Errc::kOverloaded, "cannot read " + path + ": longer than the limit of " +
                                        std::to_string(bytes_max) + " bytes");
  return found->second;
}

Status SimFiles::write(const std::string& path, std::span<const std::byte> bytes) {
  if (!life_->alive) return dead();
  life_->world->disk(machine_).files[path] = Bytes(bytes.begin(), bytes.end());
  return {};
}

Status SimFiles::remove(const std::string& path) {
  if (!life_->alive) return dead();
  life_->world->disk(machine_).files.erase(path);
  return {};
}

Status SimFiles::make_directory(const std::string&) {
  if (!life_->alive) return dead();
  return {};
}

Result<std::unique_ptr<FileLock>> SimFiles::lock(const std::string& path, Duration) {
  if (!life_->alive) return dead();
  auto& locks = life_->world->disk(machine_).locks;
  const auto found = locks.find(path);
  if (found != locks.end() && found->second->alive)
    return error(Errc::kDeadline, "cannot lock " + path + ": held by " + found->second->process);
  locks[path] = life_;
  return std::unique_ptr<FileLock>(std::make_unique<SimLock>(life_, machine_, path));
}

}  // namespace headrace::sim
