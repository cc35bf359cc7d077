#include "kernels/device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace headrace::kernels;

TEST_CASE("paths have names, and the best is supported") {
  for (CpuPath path : kCpuPaths) {
    CHECK(parse_cpu_path(name(path)) == path);
  }
  CHECK_FALSE(parse_cpu_path("avx1024"));
  CHECK_FALSE(parse_cpu_path(""));
  CHECK(supported(CpuPath::kPortable));
  CHECK(supported(best_cpu_path()));
  // The compiler's own detection is the independent witness.
  __builtin_cpu_init();
  CHECK(supported(CpuPath::kAvx2) ==
        (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")));
  CHECK(supported(CpuPath::kAvx512Vnni) ==
        (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")));
  // Compilers of today do not know it by name; a kernel may still refuse the tiles' memory.
  if (supported(CpuPath::kAmx)) {
    std::ifstream info("/proc/cpuinfo");
    const std::string text{std::istreambuf_iterator<char>(info), {}};
    CHECK(text.find(" amx_tile ") != std::string::npos);
    CHECK(text.find(" amx_int8 ") != std::string::npos);
    CHECK(supported(CpuPath::kAvx512Vnni));
  }
}

TEST_CASE("on the CPU, host and device are one: mirrors, copies and cleared blocks") {
  const auto device = make_cpu_device(CpuPath::kPortable, 1);
  const Mirror mirror = device->mirror(64);
  CHECK(mirror.device<int>() == mirror.as<int>());
  const Buffer memory = device->allocate(64);
  const std::vector<std::byte> text(10, std::byte{7});
  device->write(memory.data() + 3, text);
  std::vector<std::byte> back(10);
  device->read(back, memory.data() + 3);
  CHECK(back == text);
  const KvLayout layout{KvType::kF16, 1, 1, 8, 16};
  const Buffer blocks = device->allocate(3 * layout.block_bytes());
  std::fill_n(blocks.data(), blocks.size(), std::byte{1});
  const uint32_t middle[] = {1};
  device->zero_blocks({layout, blocks.data()}, middle);
  const auto* at = blocks.data();
  const auto one = static_cast<std::ptrdiff_t>(layout.block_bytes());
  CHECK(std::count(at, at + one, std::byte{0}) == 0);
  CHECK(std::count(at + one, at + 2 * one, std::byte{0}) == one);
  CHECK(std::count(at + 2 * one, at + 3 * one, std::byte{0}) == 0);
  CHECK(device->padded(5, true) == 5);
  int runs = 0;
  device->forward({}, 0, [&] { ++runs; });
  CHECK(runs == 1);
}
