#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_product.h"

// Few rows: memory is the roof, and every byte of weights is read once. A block has one to four
// strips at a time and a warp for each piece of K. A warp streams its piece's units through a ring
// of its own in shared memory by cp.async, so that nothing but its own copies is waited for; the
// ring is full before the launch in front has ended, and runs on from one round of strips into the
// next. x comes straight from the L2, 16 bytes a lane and row and group, one unit ahead; a block's
// strips share it. At the end of a round the pieces' sums meet in shared memory and are added in
// order.

namespace headrace::cuda {
namespace {

// Shared memory of a block that fits on sm_80: 163 KB.
constexpr unsigned kSharedMax = 163 * 1024;
constexpr unsigned kRoundsMax = 8;

// Strips that share what is read of x: as many as registers and shared memory are enough for.
constexpr unsigned strips_of(WeightType type, unsigned tiles) {
  switch (type) {
    case WeightType::kW4:
      return 4;
    case WeightType::kW4Min:
      return tiles == 4 ? 2 : 4;
    case WeightType::kF32:
      return 1;
    default:
      return 2;
  }
}

// Slots of a ring: some 60 KB of a block's are on their way.
constexpr unsigned slots_of(WeightType type, unsigned tiles) {
  switch (type) {
    case WeightType::kW4:
    case WeightType::kW4Min:
      return strips_of(type, tiles) == 4 ? 4 : 7;
    case WeightType::kW8:
      return 5;
    case WeightType::kF32:
      return 2;
    default:
      return 3;
  }
}

template <WeightType kType, unsigned kTiles>
struct Plan {
  static constexpr unsigned kStrips = strips_of(kType, kTiles);
  // Of a processor, as registers go.
  static constexpr unsigned kBlocks = Unit<kType>::kQuantized && kTiles == 4 ? 1 : 2;
  static constexpr unsigned kSlots = slots_of(kType, kTiles);
  static constexpr unsigned kSlotBytes = kStrips * Unit<kType>::kBytes;
  static constexpr unsigned kRingBytes = kSlots * kSlotBytes;            // of a warp
  static constexpr unsigned kSumsBytes = kStrips * kTiles * 16 * kWarp;  // of a warp
  static constexpr unsigned shared_bytes(unsigned warps) {
    return warps * (kRingBytes + kSumsBytes) + quad_bytes(kTiles);
  }
  static_assert(shared_bytes(kPiecesMax) <= kSharedMax);
  static_assert(kQuad % kStrips == 0);
};

// What a block does: `rounds` times `strips` strips, from `first` on.
struct Work {
  unsigned first;
  unsigned strips;
  unsigned rounds;
};

// Strips of a round that there are, up to work.strips.
__device__ __forceinline__ unsigned strips_left(const Product& p, const Work& work,
                                                unsigned round) {
  const unsigned first = work.first + round * work.strips;
  if (first >= p.strips) return 0;
  return p.strips - first < work.strips ? p.strips - first : work.strips;
}

// What a warp asks for next: `left` units of each of `there` strips.
struct Source {
  const unsigned char* unit = nullptr;  // of the round's first strip, the lane's 16 bytes
  unsigned round = 0;
  unsigned there = 0;
  unsigned left = 0;
};

template <WeightType kType>
__device__ __forceinline__ Source source_of(const Product& p, const Work& work, unsigned round,
                                            unsigned first_unit, unsigned count, unsigned lane) {
  const size_t strip = work.first + round * work.strips;
  return {p.weights + (strip * p.units + first_unit) * Unit<kType>::kBytes + 16 * lane, round,
          round < work.rounds ? strips_left(p, work, round) : 0, count};
}

template <WeightType kType, unsigned kTiles>
__device__ __forceinline__ void request(const Source& from, unsigned char* slot, unsigned units,
                                        unsigned lane) {
  using Weights = Unit<kType>;
  const size_t strip_bytes = size_t{units} * Weights::kBytes;
  unsigned char* to = slot + 16 * lane;
#pragma unroll
  for (unsigned s = 0; s < Plan<kType, kTiles>::kStrips; s++) {
    if (s >= from.there) continue;
#pragma unroll
    for (unsigned line = 0; line < Weights::kLines; line++) {
      cp_async16(to + s * Weights::kBytes + line * kLineBytes,
                 from.unit + s * strip_bytes + line * kLineBytes);
    }
  }
  // Scales and minima of all strips at once: a lane's `back` bytes before what is its own.
  constexpr unsigned kTail = Weights::kTables * kScaleBytes / 16;
  if constexpr (kTail != 0) {
    if (lane >= from.there * kTail) return;
    const unsigned s = lane / kTail;
    const unsigned back = s * kTail * 16;
    cp_async16(to + s * Weights::kBytes + Weights::kLines * kLineBytes - back,
               from.unit + s * strip_bytes + Weights::kLines * kLineBytes - back);
  }
}

// A lane's rows of x: each kTileRows-th from its first.
struct Rows {
  const uint16_t* unit;  // the lane's part of its first row
  size_t tile;           // elements from one of its rows to the next
  unsigned left;         // rows from its first on
};

// Group `h` of the unit, rows past the last as zeros.
template <unsigned kTiles>
__device__ __forceinline__ void load_x(uint4 (&x)[kTiles], const Rows& rows, unsigned h,
                                       bool wanted = true) {
#pragma unroll
  for (unsigned j = 0; j < kTiles; j++) {
    x[j] = make_uint4(0, 0, 0, 0);
    if (wanted && kTileRows * j < rows.left) x[j] = ld16(rows.unit + j * rows.tile + 32 * h);
  }
}

// Unit `unit`, in `slot`, with what is held of x, while the one that is next is asked for.
template <WeightType kType, unsigned kTiles>
__device__ __forceinline__ void multiply_unit(
    const Product& p, float (&piece)[Plan<kType, kTiles>::kStrips][kTiles][4], unsigned strips,
    const unsigned char* slot, unsigned unit, const Rows& next, bool wanted, uint4 (&x)[2][kTiles],
    unsigned lane) {
  constexpr unsigned kStrips = Plan<kType, kTiles>::kStrips;
  constexpr unsigned kBytes = Unit<kType>::kBytes;
  float2 x_sums[kTiles][2];
  load_sums<kType>(x_sums, p, 0, unit, lane);
  uint4 line[kStrips] = {};
#pragma unroll
  for (unsigned s = 0; s < kStrips; s++) {
    if (s < strips) line[s] = load_nibbles<kType>(slot + s * kBytes, lane);
  }
#pragma unroll
  for (unsigned h = 0; h < 2; h++) {
#pragma unroll
    for (unsigned s = 0; s < kStrips; s++) {
      if (s >= strips) continue;
      add_group<kType>(piece[s], load_group<kType>(slot + s * kBytes, h, lane, line[s]), x[h],
                       x_sums, h);
    }
    load_x(x[h], next, h, wanted);
  }
}

// Tile `item` of the block's: the pieces' sums in order.
__device__ __forceinline__ void add_pieces(float (&total)[4], const Product& p,
                                           const unsigned char* sums, unsigned warp_bytes,
                                           unsigned item, unsigned lane) {
  for (unsigned piece = 0; piece < p.pieces; piece++) {
    const uint4 v = ld16(sums + piece * warp_bytes + (item * kWarp + lane) * 16);
    total[0] += bits_float(v.x);
    total[1] += bits_float(v.y);
    total[2] += bits_float(v.z);
    total[3] += bits_float(v.w);
  }
}

// The end of a round: all warps of the block.
template <WeightType kType, unsigned kTiles>
__device__ __forceinline__ void finish(
    const Product& p, const Work& work, unsigned round, unsigned char* sums, unsigned char* quad,
    const float (&piece)[Plan<kType, kTiles>::kStrips][kTiles][4], unsigned warp, unsigned lane) {
  using Fit = Plan<kType, kTiles>;
#pragma unroll
  for (unsigned s = 0; s < Fit::kStrips; s++) {
#pragma unroll
    for (unsigned j = 0; j < kTiles; j++) {
      const float* sum = piece[s][j];
      st16(sums + warp * Fit::kSumsBytes + ((s * kTiles + j) * kWarp + lane) * 16,
           make_uint4(float_bits(sum[0]), float_bits(sum[1]), float_bits(sum[2]),
                      float_bits(sum[3])));
    }
  }
  syncthreads();
  for (unsigned item = warp; item < work.strips * kTiles; item += p.pieces) {
    const unsigned place = round * work.strips + item / kTiles;
    const unsigned row = item % kTiles * kTileRows;
    float total[4] = {};
    add_pieces(total, p, sums, Fit::kSumsBytes, item, lane);
    if (p.paired) {
      put_tile(p, quad, work.first + place, place, row, row, total, lane);
    } else {
      store_tile(p, work.first + place, row, total, lane);
    }
  }
  syncthreads();
}

template <WeightType kType, unsigned kTiles>
__global__ void __launch_bounds__(kPiecesMax* kWarp, Plan<kType, kTiles>::kBlocks)
    matmul_stream_kernel(Product p, unsigned strips, unsigned rounds) {
  using Fit = Plan<kType, kTiles>;
  HEADRACE_SHARED(unsigned char, shared);
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const Work work = {blockIdx.x * strips * rounds, strips, rounds};
  const unsigned first = warp * p.piece_units;
  const unsigned count = first + p.piece_units < p.units ? p.piece_units : p.units - first;
  unsigned char* ring = shared + warp * Fit::kRingBytes;
  unsigned char* sums = shared + p.pieces * Fit::kRingBytes;
  unsigned char* quad = sums + p.pieces * Fit::kSumsBytes;

  Source ahead = source_of<kType>(p, work, 0, first, count, lane);
  const auto ask = [&](unsigned slot) {
    request<kType, kTiles>(ahead, ring + slot, p.units, lane);
    cp_commit();
    ahead.unit += Unit<kType>::kBytes;
    if (--ahead.left == 0) {
      ahead = source_of<kType>(p, work, ahead.round + 1, first, count, lane);
    }
  };
  for (unsigned slot = 0; slot + 1 < Fit::kSlots; slot++) ask(slot * Fit::kSlotBytes);
  grid_dependency_wait();
  grid_dependency_trigger();
  const unsigned row = lane / 4;
  Rows rows = {p.x + (size_t{row} * p.units + first) * 64 + lane % 4 * 8,
               size_t{kTileRows} * 64 * p.units, row < p.rows ? p.rows - row : 0};
  uint4 x[2][kTiles];
  load_x(x[0], rows, 0);
  load_x(x[1], rows, 1);

  unsigned now = 0;                                     // the slot that is multiplied
  unsigned free = (Fit::kSlots - 1) * Fit::kSlotBytes;  // the one that was multiplied before
  for (unsigned round = 0; round < rounds; round++) {
    float piece[Fit::kStrips][kTiles][4] = {};
    const unsigned there = strips_left(p, work, round);
    for (unsigned unit = 0; unit < count; unit++) {
      cp_wait<Fit::kSlots - 2>();
      syncwarp();
      ask(free);
      const bool last = unit + 1 == count;
      rows.unit += last ? -static_cast<int64_t>(unit) * 64 : 64;
      multiply_unit<kType, kTiles>(p, piece, there, ring + now, first + unit, rows,
                                   !last || round + 1 < rounds, x, lane);
      free = now;
      now = now + Fit::kSlotBytes < Fit::kRingBytes ? now + Fit::kSlotBytes : 0;
    }
    finish<kType, kTiles>(p, work, round, sums, quad, piece, warp, lane);
  }
  cp_wait<0>();
  if (!p.paired || p.out.bf16 == nullptr) return;
  for (unsigned j = warp; j < kTiles; j += p.pieces) {
    deliver_quad(p, quad, work.first * 8, j * kTileRows, j * kTileRows, lane);
  }
}

template <WeightType kType, unsigned kTiles>
cudaError_t launch_stream(const Product& p, const Context& context) {
  using Fit = Plan<kType, kTiles>;
  const auto processors = static_cast<unsigned>(context.processors);
  unsigned strips = Fit::kStrips;
  unsigned rounds = kQuad / strips;
  if (!p.paired) {
    // A block for nearly each processor comes first, then x shared by more strips, then long runs.
    while (strips > 1 && 10 * p.strips < 9 * strips * processors) strips /= 2;
    const unsigned wanted = p.strips / strips / (4 * processors);
    rounds = wanted < 1 ? 1 : wanted > kRoundsMax ? kRoundsMax : wanted;
  }
  const unsigned of_block = strips * rounds;
  const unsigned blocks =
      p.paired ? p.out_pitch / kQuadColumns : (p.strips + of_block - 1) / of_block;
  return launch_dependent("matmul_stream", context.stream, dim3(blocks), dim3(p.pieces * kWarp),
                          Fit::shared_bytes(p.pieces), matmul_stream_kernel<kType, kTiles>, p,
                          strips, rounds);
}

static_assert(kStreamRowsMax == 4 * kTileRows);

template <WeightType kType>
cudaError_t launch_rows(const Product& p, const Context& context) {
  if (p.rows <= kTileRows) return launch_stream<kType, 1>(p, context);
  if (p.rows <= 2 * kTileRows) return launch_stream<kType, 2>(p, context);
  return launch_stream<kType, 4>(p, context);
}

// False: not a product that is done. `p` is complete but for where results go.
bool describe(Product& p, const kernels::Matrix& w, const kernels::Rows& x, int32_t rows) {
  if (w.tiling != kernels::Tiling::kFragments || w.rows < 0 || w.cols < 1 || rows < 0 ||
      w.type > WeightType::kW4Min || !vector_aligned(w.data) || x.bf16 == nullptr ||
      x.f32 != nullptr || x.q != nullptr || !vector_aligned(x.bf16) || !vector_aligned(x.sums) ||
      (w.type == WeightType::kW4Min && x.sums == nullptr)) {
    return false;
  }
  p.weights = reinterpret_cast<const unsigned char*>(w.data);
  p.type = w.type;
  p.n = static_cast<unsigned>(w.rows);
  p.strips = (p.n + 15) / 16;
  p.units = (static_cast<unsigned>(w.cols) + 63) / 64;
  p.piece_units = piece_units(p.units);
  p.pieces = (p.units + p.piece_units - 1) / p.piece_units;
  p.x = x.bf16;
  p.sums = x.sums;
  p.rows = static_cast<unsigned>(rows);
  p.paired = w.paired;
  return true;
}

cudaError_t enqueue_product(const Product& p, const Context& context) {
  if (p.rows == 0 || p.n == 0) return cudaSuccess;
  if (p.rows > static_cast<unsigned>(kStreamRowsMax)) return enqueue_tile(p, context);
  switch (p.type) {
    case WeightType::kF32:
      return launch_rows<WeightType::kF32>(p, context);
    case WeightType::kF16:
      return launch_rows<WeightType::kF16>(p, context);
    case WeightType::kBf16:
      return launch_rows<WeightType::kBf16>(p, context);
    case WeightType::kW8:
      return launch_rows<WeightType::kW8>(p, context);
    case WeightType::kW4:
      return launch_rows<WeightType::kW4>(p, context);
    case WeightType::kW4Min:
      return launch_rows<WeightType::kW4Min>(p, context);
  }
  return cudaErrorInvalidValue;
}

Spread spread_for(const kernels::Matrix& w, int32_t rows, int processors) {
  return spread_of(static_cast<uint32_t>(w.tiles()), static_cast<uint32_t>(w.units()),
                   static_cast<uint32_t>(rows), static_cast<uint32_t>(processors));
}

uint64_t spread_bytes(const kernels::Matrix& w, int32_t rows, int processors) {
  if (rows <= kStreamRowsMax || w.rows < 1 || w.cols < 1) return 0;
  const uint64_t tiles = uint64_t{shares_of(static_cast<uint32_t>(rows), kTileRows)} *
                         static_cast<uint32_t>(w.tiles());
  return 2 * tiles * kTileBytes * spread_for(w, rows, processors).sums();  // written and read
}

}  // namespace

uint64_t spread_bytes(const kernels::MatMul& op, int processors) {
  return spread_bytes(op.w, op.rows, processors);
}

uint64_t spread_bytes(const kernels::MatMulSwiGlu& op, int processors) {
  return spread_bytes(op.w, op.rows, processors);
}

bool may_spread(const kernels::Matrix& w, int processors) {
  for (int32_t rows = kStreamRowsMax + 1; rows < 256; rows += 64)
    if (spread_bytes(w, rows, processors) > 0) return true;
  return false;
}

cudaError_t enqueue(const kernels::MatMul& op, const Context& context) {
  Product p;
  if (!describe(p, op.w, op.x, op.rows) || p.paired || op.y == nullptr || op.stride < op.w.rows) {
    return cudaErrorInvalidValue;
  }
  p.y = op.y;
  p.stride = op.stride;
  p.add = op.add;
  return enqueue_product(p, context);
}

cudaError_t enqueue(const kernels::MatMulSwiGlu& op, const Context& context) {
  Product p;
  if (!describe(p, op.w, op.x, op.rows) || !p.paired || op.w.rows % 16 != 0 || op.y.q != nullptr ||
      (op.y.f32 == nullptr && op.y.bf16 == nullptr) ||
      (op.y.bf16 == nullptr) != (op.y.sums == nullptr) || !vector_aligned(op.y.bf16)) {
    return cudaErrorInvalidValue;
  }
  p.out = op.y;
  p.out_pitch = static_cast<unsigned>(kernels::bf16_pitch(op.w.rows / 2));
  return enqueue_product(p, context);
}

}  // namespace headrace::cuda
