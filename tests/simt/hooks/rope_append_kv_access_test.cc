#include <doctest/doctest.h>

#include "kernels/cuda/attention.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/hooks/moves.h"

namespace headrace::simt {
namespace {

using kernels::KvType;

TEST_CASE("rope append moves what it costs, in whole sectors") {
  constexpr int32_t kRows = 5, kHeads = 8, kKvHeads = 2, kContext = 64;
  for (const KvType type : {KvType::kF16, KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
    for (const int32_t dims : {64, 128}) {
      CAPTURE(static_cast<int>(type));
      CAPTURE(dims);
      const kernels::KvLayout layout{type, 1, kKvHeads, dims, 16, kernels::KvOrder::kRows};
      const DeviceBuffer<std::byte> pool(std::vector<std::byte>(4 * layout.block_bytes()));
      const DeviceBuffer<uint32_t> table({2, 0, 3, 1});
      std::vector<kernels::StepRow> rows;
      for (int32_t r = 0; r < kRows; r++) rows.push_back({table.get(), 14 + r});
      const DeviceBuffer<kernels::StepRow> step(rows);
      const DeviceBuffer<float> rope(
          std::vector<float>(static_cast<size_t>(kContext * dims), 0.5f));
      const DeviceBuffer<float> qkv(
          std::vector<float>(static_cast<size_t>(kRows * (kHeads + 2 * kKvHeads) * dims), 1.0f));
      const kernels::RopeAppendKv op{qkv.get(), step.get(), rope.get(), kRows,
                                     kHeads,    dims,       0,          {layout, pool.get()}};
      const Accesses accesses = record_once(
          [&](cudaStream_t stream) { return cuda::enqueue(op, cuda::Context{.stream = stream}); });
      check_moves(accesses, {.kv = {pool.get()}}, kernels::cost(op));
      check_lines(accesses, "rope_append_kv.cu:");
    }
  }
}

}  // namespace
}  // namespace headrace::simt
