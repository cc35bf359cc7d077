#include "worker/input_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>

#include "tests/worker/gguf_builder.h"

namespace headrace::worker {
namespace {

TEST_CASE("a file is read at any offset and never past its end") {
  const TempFile file("0123456789");
  const auto opened = InputFile::open(file.path());
  REQUIRE(opened.has_value());
  CHECK(opened->size() == 10);
  std::array<std::byte, 4> part;
  REQUIRE(opened->read(6, part).ok());
  CHECK(static_cast<char>(part[3]) == '9');
  CHECK(opened->read(7, part).code == Errc::kInvalid);
  CHECK(opened->read(~uint64_t{0}, part).code == Errc::kInvalid);
  CHECK(opened->unchanged().ok());
}

TEST_CASE("a file cut while it is open gives an error, not a signal") {
  TempFile file(std::string(100'000, 'x'));
  const auto opened = InputFile::open(file.path());
  REQUIRE(opened.has_value());
  file.write("short");
  std::array<std::byte, 4> part;
  CHECK(opened->read(50'000, part).message == file.path() + ": was cut while it was read");
  CHECK(opened->unchanged().message == file.path() + ": changed while it was read");
  CHECK_FALSE(opened->digest().has_value());
}

TEST_CASE("what is no regular file is refused by name") {
  const auto missing = InputFile::open("no/such/file");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == Errc::kNotFound);
  CHECK(missing.error().message == "no/such/file: No such file or directory");
  const auto folder = InputFile::open(std::filesystem::temp_directory_path().string());
  REQUIRE_FALSE(folder.has_value());
  CHECK(folder.error().message.ends_with("is a directory, not a model file"));
  const auto device = InputFile::open("/dev/null");
  REQUIRE_FALSE(device.has_value());
  CHECK(device.error().message == "/dev/null: is not a regular file");
  const TempFile place("");
  const std::string pipe = place.path() + ".pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto opened = InputFile::open(pipe);  // does not wait for a writer
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().message == pipe + ": is not a regular file");
  std::filesystem::remove(pipe);
}

TEST_CASE("a fault in a file's own words stays one line, and short") {
  const TempFile file("x");
  const auto opened = InputFile::open(file.path());
  REQUIRE(opened.has_value());
  CHECK(opened->fault("architecture a\n\x1b[2J\x7f\xc3 is not supported").message ==
        file.path() + ": architecture a??[2J?? is not supported");
  const auto flood = opened->fault(std::string(100'000, '\n')).message;
  CHECK(flood == file.path() + ": " + std::string(InputFile::kFaultBytesMax, '?') + "...");
}

TEST_CASE("the digest is XXH3-128 of the bytes") {
  // Reference values of the xxHash specification: of nothing, seed 0.
  const TempFile empty("");
  const auto none = InputFile::open(empty.path());
  REQUIRE(none.has_value());
  CHECK(*none->digest() == Digest{.hi = 0x99aa06d3014798d8, .lo = 0x6001c324468d497f});
  const TempFile one(std::string(9 << 20, 'a')), other(std::string(9 << 20, 'a') + "b");
  const auto a = InputFile::open(one.path()), b = InputFile::open(other.path());
  uint64_t seen = 0;
  CHECK(*a->digest() == *a->digest([&](uint64_t n) { seen = n; }));
  CHECK(seen == 9 << 20);
  CHECK(*a->digest() != *b->digest());
}

}  // namespace
}  // namespace headrace::worker
