#include "kernels/buffer.h"

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

TEST_CASE("memory of a device goes back to it, once") {
  std::byte memory[8];
  int freed = 0;
  {
    Buffer a(memory, sizeof memory, [&](std::byte* p) { freed += p == memory; });
    Buffer b(std::move(a));
    CHECK(freed == 0);
    Buffer c;
    c = std::move(b);
    CHECK(c.data() == memory);
  }
  CHECK(freed == 1);
}

TEST_CASE("a mirror is the host's memory unless the device has its own") {
  std::byte memory[8];
  Mirror one{Buffer(8), {}};
  CHECK(one.device<std::byte>() == one.host.data());
  Mirror two{Buffer(8), Buffer(memory, sizeof memory, [](std::byte*) {})};
  CHECK(two.device<std::byte>() == memory);
  CHECK(two.as<std::byte>() == two.host.data());
}
