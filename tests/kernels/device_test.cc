#include "kernels/device.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

using namespace headrace::kernels;

TEST_CASE("buffers are aligned, zeroed and move") {
  for (size_t bytes : {size_t{1}, size_t{100}, size_t{4096}, size_t{5} << 20}) {
    Buffer a(bytes);
    CHECK(a.size() == bytes);
    CHECK(reinterpret_cast<uintptr_t>(a.data()) % 64 == 0);
    for (size_t i = 0; i < bytes; i += 61) REQUIRE(a.data()[i] == std::byte{0});
    std::memset(a.data(), 1, bytes);
    std::byte* data = a.data();
    Buffer b(std::move(a));
    CHECK(b.data() == data);
    CHECK(a.data() == nullptr);
    Buffer c;
    c = std::move(b);
    CHECK(c.data() == data);
    CHECK(c.as<uint8_t>()[bytes - 1] == 1);
  }
  CHECK(Buffer(0).data() == nullptr);
}

TEST_CASE("memory that cannot be had throws") {
  CHECK_THROWS_AS(Buffer(SIZE_MAX), std::bad_alloc);
  CHECK_THROWS_AS(Buffer(SIZE_MAX / 2), std::bad_alloc);
}

TEST_CASE("paths have names, and the best is supported") {
  for (CpuPath path : {CpuPath::kPortable, CpuPath::kAvx2, CpuPath::kAvx512Vnni}) {
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
}
