#include "protocol/files.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace headrace {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "headrace-files-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path), {}));
  }
  fs::path path;
};

Bytes bytes(size_t size, int fill) { return Bytes(size, static_cast<std::byte>(fill)); }

TEST_CASE("what was written is read, the last of it") {
  Folder folder;
  OsFiles files;
  const std::string path = folder / "term";
  CHECK(files.write(path, bytes(100'000, 1)).ok());
  CHECK(files.write(path, bytes(7, 2)).ok());
  CHECK(files.read(path, 7).value() == bytes(7, 2));
  CHECK(files.write(path, {}).ok());
  CHECK(files.read(path, 0).value().empty());
  CHECK(folder.entries() == 1);  // no leftovers of the writing
}

TEST_CASE("reading has a limit and names the file") {
  Folder folder;
  OsFiles files;
  const std::string path = folder / "big";
  CHECK(files.write(path, bytes(11, 1)).ok());
  const auto big = files.read(path, 10);
  REQUIRE_FALSE(big);
  CHECK(big.error().code == Errc::kOverloaded);
  CHECK(big.error().message == "cannot read " + path + ": longer than the limit of 10 bytes");
  const auto none = files.read(folder / "none", 10);
  CHECK(none.error().code == Errc::kNotFound);
  CHECK(none.error().message.find("none") != std::string::npos);
  CHECK(files.read(folder.path.string(), 10).error().code == Errc::kInvalid);
  const std::string fifo = folder / "fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(files.read(fifo, 10).error().code == Errc::kInvalid);  // and does not hang
}

TEST_CASE("a failed write leaves the old bytes and no litter") {
  Folder folder;
  OsFiles files;
  const std::string taken = folder / "taken";
  REQUIRE(fs::create_directory(taken));
  CHECK_FALSE(files.write(taken, bytes(3, 1)).ok());
  CHECK(folder.entries() == 1);
  CHECK_FALSE(files.write(folder / "no/such/folder", bytes(3, 1)).ok());
}

TEST_CASE("a reader sees the old bytes or the new ones") {
  Folder folder;
  OsFiles files;
  const std::string path = folder / "state";
  REQUIRE(files.write(path, bytes(5000, 1)).ok());
  std::atomic<bool> done = false;
  std::thread writer([&] {
    OsFiles own;
    for (int i = 0; i < 50; ++i) (void)own.write(path, bytes(5000, 1 + i % 2)).ok();
    done = true;
  });
  size_t torn = 0;
  while (!done) {
    const auto read = files.read(path, 10'000);
    torn += !read || (*read != bytes(5000, 1) && *read != bytes(5000, 2));
  }
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("directories and removal are idempotent") {
  Folder folder;
  OsFiles files;
  CHECK(files.make_directory(folder / "a/b/c").ok());
  CHECK(files.make_directory(folder / "a/b/c").ok());
  CHECK(files.write(folder / "a/b/c/f", bytes(1, 1)).ok());
  CHECK_FALSE(files.make_directory(folder / "a/b/c/f").ok());
  CHECK(files.remove(folder / "a/b/c/f").ok());
  CHECK(files.remove(folder / "a/b/c/f").ok());
  CHECK_FALSE(files.remove(folder / "a").ok());
}

TEST_CASE("a lock excludes until it is dropped") {
  Folder folder;
  OsFiles files;
  const std::string path = folder / "lock";
  auto held = files.lock(path, 0s);
  REQUIRE(held);
  const auto second = files.lock(path, 30ms);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Errc::kDeadline);
  CHECK(second.error().message == "cannot lock " + path + ": held by another process for 30 ms");
  std::thread waiter([&] { CHECK(OsFiles().lock(path, 30s)); });
  std::this_thread::sleep_for(20ms);
  *held = nullptr;
  waiter.join();
  CHECK(files.lock(path, 0s));
}

}  // namespace
}  // namespace headrace
