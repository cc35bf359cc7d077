#include "kernels/cpu/roofs.h"

#include <doctest/doctest.h>

#include <vector>

#include "kernels/device.h"

namespace headrace::kernels {
namespace {

std::vector<Roofs> supported_roofs() {
  std::vector<Roofs> all = {roofs_portable()};
  if (supported(CpuPath::kAvx2)) all.push_back(roofs_avx2());
  if (supported(CpuPath::kAvx512Vnni)) all.push_back(roofs_avx512());
  if (supported(CpuPath::kAmx)) all.push_back(roofs_amx());
  return all;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

TEST_CASE("a read visits every line: each one changes the result") {
  for (const Roofs& roofs : supported_roofs()) {
    for (const size_t count : {size_t{1}, size_t{3}, size_t{4}, size_t{16}, size_t{67}}) {
      std::vector<Line> lines(count, Line{});
      const auto* from = reinterpret_cast<const std::byte*>(lines.data());
      const uint64_t before = roofs.read(from, count * sizeof(Line));
      for (size_t i = 0; i < count; i++) {
        CAPTURE(i);
        CAPTURE(count);
        lines[i].bytes[0] = std::byte{1};
        CHECK(roofs.read(from, count * sizeof(Line)) != before);
        lines[i].bytes[0] = std::byte{0};
      }
    }
  }
}

TEST_CASE("the arithmetic loops state what a round does and finish with a number") {
  for (const Roofs& roofs : supported_roofs()) {
    CHECK(roofs.int8_ops > 0);
    CHECK(roofs.f32_flops > 0);
    CHECK(roofs.int8(3) == roofs.int8(3));
    const double f = roofs.f32(3);
    CHECK(f == roofs.f32(3));
    CHECK(f == f);
  }
}

}  // namespace
}  // namespace headrace::kernels
