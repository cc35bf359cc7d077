#include <doctest/doctest.h>

#include <algorithm>

#include "tests/simt/attention_case.h"
#include "tests/simt/hooks/moves.h"
#include "tests/simt/hooks/planted.h"

namespace headrace::simt {
namespace {

using cuda::AttentionSchedule;
using cuda::kCudaSlice;
using kernels::KvType;

// One launch, and the memory of it that `AttentionOnDevice` has not.
struct Run {
  Run(AttentionCase& c, AttentionSchedule schedule, bool floats)
      : device(c),
        plan(device.plan(schedule)),
        chunks(plan.chunks),
        tiles(plan.tiles),
        y(std::vector<float>(device.output_floats(), NAN)),
        counters(
            std::vector<uint32_t>(cuda::attention_counters(AttentionOnDevice::kProcessors), 0)) {
    kernels::Attention op = device.op(y.get());
    if (floats) op.y.bf16 = nullptr, op.y.sums = nullptr;
    if (!floats) op.y.f32 = nullptr;
    const cuda::AttentionWork work{chunks.get(), static_cast<int32_t>(plan.chunks.size()),
                                   tiles.get(),  static_cast<int32_t>(plan.tiles.size()),
                                   plan.spread,  counters.get()};
    accesses = record_once(
        [&](cudaStream_t stream) { return cuda::enqueue(op, work, device.context(stream)); });
    cost = kernels::cost(op);
    pool = op.kv.base;
  }

  AttentionOnDevice device;
  cuda::AttentionPlan plan;
  DeviceBuffer<cuda::AttentionTile> chunks, tiles;
  DeviceBuffer<float> y;
  DeviceBuffer<uint32_t> counters;
  Accesses accesses;
  kernels::Cost cost;
  const void* pool;
};

TEST_CASE(
    "attention of decode rows moves what it costs, in whole sectors, without bank conflicts") {
  struct Shape {
    KvType type;
    int32_t dims;
    bool floats;
  };
  for (const Shape& shape : {Shape{KvType::kF16, 64, false},
                             {KvType::kF16, 128, true},
                             {KvType::kBf16, 128, false},
                             {KvType::kFp8, 128, false},
                             {KvType::kInt8, 64, false}}) {
    CAPTURE(static_cast<int>(shape.type));
    CAPTURE(shape.dims);
    AttentionCase c({shape.type, 16, 2, shape.dims, 64}, 40, 1);
    c.sequence(3 * kCudaSlice - 1, 3 * kCudaSlice, 1);
    c.sequence(kCudaSlice + 70, kCudaSlice + 71, 1);
    const Run r(c, AttentionSchedule::kTiles, shape.floats);
    check_moves(r.accesses, {.kv = {r.pool}}, r.cost);
    check_lines(r.accesses, "attention.cu:");
  }
}

TEST_CASE("attention of split rows reads KV once, and partial results are small beside it") {
  AttentionCase c({KvType::kF16, 8, 2, 128, 16}, 60, 1);
  c.sequence(3 * kCudaSlice - 1, 3 * kCudaSlice, 1);
  const Run r(c, AttentionSchedule::kSplit, false);
  CHECK(r.plan.spread == 3);
  const Kinds kinds{.kv = {r.pool}};
  CHECK(moved(r.accesses, kinds).kv_bytes == r.cost.kv_bytes);
  const BufferUse scratch = r.accesses.of(r.device.context(nullptr).workspace);
  // Three slices of eight rows: values, largest score and sum, written and read once.
  const uint64_t partial = 3 * 8 * (128 + 2) * sizeof(float);
  CHECK(scratch.written.bytes == partial);
  CHECK(scratch.read.distinct_bytes == partial);
  CHECK(2 * partial < r.cost.kv_bytes / 15);
  // A row's score and sum are a sector of their own, one in seventeen.
  for (const LineUse& use : r.accesses.lines) {
    INFO(describe(use));
    CHECK(use.units * 100 <= use.least * 106);
  }
}

TEST_CASE("attention of a chunk reads KV once for each 64 queries") {
  AttentionCase c({KvType::kF16, 4, 1, 64, 64}, 40, 1);
  c.sequence(kCudaSlice, kCudaSlice + 48, 1);
  const Run r(c, AttentionSchedule::kChunks, false);
  REQUIRE(r.plan.chunks.size() == 3);
  const uint64_t key = 2 * r.cost.kv_bytes / (kCudaSlice + 48) / 2;
  const Kinds kinds{.kv = {r.pool}};
  // 16 rows of four heads are a chunk tile, and each stops at its last position.
  CHECK(moved(r.accesses, kinds).kv_bytes == key * (3 * kCudaSlice + 16 + 32 + 48));
  CHECK(r.accesses.of(r.pool).read.distinct_bytes == r.cost.kv_bytes);
  check_lines(r.accesses, "attention.cu:");
}

TEST_CASE("attention's memory grows with the length, not with its square as unfused steps do") {
  constexpr unsigned kShort = 32, kLong = 128, kDims = 16;
  const auto ours = [](unsigned rows) {
    AttentionCase c({KvType::kF16, 1, 1, kDims, 64}, 20, 1);
    c.sequence(0, static_cast<int32_t>(rows), 1);
    return moved(Run(c, AttentionSchedule::kAuto, true).accesses, {}).activation_bytes;
  };
  const auto unfused = [](unsigned rows) {
    const DeviceBuffer<float> scores(std::vector<float>(size_t{rows} * rows, NAN));
    const DeviceBuffer<float> q(std::vector<float>(size_t{rows} * kDims, 0.5f));
    const DeviceBuffer<float> k(std::vector<float>(size_t{rows} * kDims, 0.25f));
    const DeviceBuffer<float> v(std::vector<float>(size_t{rows} * kDims, 2.0f));
    const DeviceBuffer<float> y(std::vector<float>(size_t{rows} * kDims, NAN));
    const Accesses accesses = record_once([&](cudaStream_t stream) {
      return cuda::enqueue_unfused_attention(y.get(), scores.get(), q.get(), k.get(), v.get(), rows,
                                             kDims, stream);
    });
    for (const float x : y.values()) CHECK(x == doctest::Approx(2));
    return moved(accesses, {}).activation_bytes;
  };
  const double ratio = static_cast<double>(ours(kLong)) / static_cast<double>(ours(kShort));
  CHECK(ratio > 3.9);
  CHECK(ratio < 4.1);
  CHECK(static_cast<double>(unfused(kLong)) / static_cast<double>(unfused(kShort)) > 7);
}

}  // namespace
}  // namespace headrace::simt
