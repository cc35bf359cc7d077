#include "tests/simt/hooks/moves.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/simt/device_buffer.h"
#include "tests/simt/order.h"

namespace headrace::simt {

Accesses record_once(const std::function<cudaError_t(cudaStream_t)>& enqueue) {
  Order order;
  order.late_copies = false;
  set_order(order);
  const TestStream stream;
  return record([&] {
    REQUIRE(enqueue(stream.get()) == cudaSuccess);
    stream.wait();
  });
}

std::string describe(const LineUse& use) {
  return use.line + (use.shared ? " shared" : " global") + (use.write ? " write: " : " read: ") +
         std::to_string(use.accesses) + " warp accesses, " + std::to_string(use.bytes) +
         " bytes, " + std::to_string(use.units) + " units, at least " + std::to_string(use.least);
}

kernels::Cost moved(const Accesses& accesses, const Kinds& kinds) {
  kernels::Cost out;
  for (const BufferUse& use : accesses.buffers) {
    const auto holds = [&](const std::vector<const void*>& places) {
      return std::any_of(places.begin(), places.end(), [&](const void* p) {
        return reinterpret_cast<uintptr_t>(p) - use.base < use.size;
      });
    };
    const uint64_t each_time = use.read.bytes + use.written.bytes;
    const uint64_t once = use.read.distinct_bytes + use.written.distinct_bytes;
    if (holds(kinds.weights)) {
      out.weight_bytes += each_time;
    } else if (holds(kinds.kv)) {
      out.kv_bytes += each_time;
    } else if (holds(kinds.cached_weights)) {
      out.weight_bytes += once;
    } else {
      out.activation_bytes += once;
    }
  }
  return out;
}

void check_moves(const Accesses& accesses, const Kinds& kinds, const kernels::Cost& cost) {
  constexpr double kSlack = 0.02;
  const kernels::Cost found = moved(accesses, kinds);
  const auto check = [](const char* kind, uint64_t moves, uint64_t costs) {
    INFO(kind);
    CHECK(static_cast<double>(moves) ==
          doctest::Approx(static_cast<double>(costs)).epsilon(kSlack));
  };
  check("weights", found.weight_bytes, cost.weight_bytes);
  check("kv", found.kv_bytes, cost.kv_bytes);
  check("activations", found.activation_bytes, cost.activation_bytes);
}

void check_lines(const Accesses& accesses, const std::string& file,
                 const std::vector<std::string>& cold) {
  CHECK(!accesses.lines.empty());
  for (const LineUse& use : accesses.lines) {
    if (std::find(cold.begin(), cold.end(), use.line) != cold.end()) continue;
    INFO(describe(use));
    CHECK(use.line.starts_with(file));
    CHECK(use.units == use.least);
  }
}

}  // namespace headrace::simt
