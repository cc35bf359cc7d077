#include "kernels/cuda/copies.h"

#include <random>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "tests/simt/cudart/control.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

namespace headrace::cuda {
namespace {

std::vector<std::byte> noise(size_t bytes) {
  std::mt19937 random(static_cast<uint32_t>(bytes));
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

// Around the halves of the pinned memory, 4 MiB each.
TEST_CASE("what was written is read, whatever the size") {
  simt::reset();
  Copies copies(0);
  for (const size_t bytes : {size_t{0}, size_t{1}, (size_t{4} << 20) - 1, size_t{4} << 20,
                             (size_t{4} << 20) + 1, (size_t{12} << 20) + 5}) {
    CAPTURE(bytes);
    const auto sent = noise(bytes);
    const kernels::Buffer memory = device_memory(0, bytes + 16, copies.stream());
    copies.write(memory.data() + 8, sent);
    std::vector<std::byte> got(bytes);
    copies.read(got, memory.data() + 8);
    CHECK(got == sent);
    std::vector<std::byte> edge(8);
    copies.read(edge, memory.data() + 8 + bytes);
    CHECK(edge == std::vector<std::byte>(8));
  }
  simt::reset();
}

TEST_CASE("several threads at once") {
  simt::reset();
  Copies copies(0);
  const kernels::Buffer memory = device_memory(0, 4 * 1000, copies.stream());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] { copies.write(memory.data() + t * 1000, noise(1000 - t)); });
  for (std::thread& t : threads) t.join();
  for (size_t t = 0; t < 4; ++t) {
    std::vector<std::byte> got(1000 - t);
    copies.read(got, memory.data() + t * 1000);
    CHECK(got == noise(1000 - t));
  }
  simt::reset();
}

}  // namespace
}  // namespace headrace::cuda
