#include "kernels/cuda/dev.h"
#include "kernels/cuda/launch_limits.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_product.h"

// Many rows: the tensor cores are the roof. A block multiplies 128 rows of weights and 64 of x,
// unit by unit, each staged by all its threads through a ring in shared memory; a warp has two
// strips and four tiles of x. Sums are formed in the order of matmul_stream.cu: a group by itself,
// then into its piece, then into the total. Blocks that share weights have neighbouring numbers.
//
// Where that makes few blocks, several share the pieces of K (matmul_spread.h): each leaves its
// pieces' sums in the workspace, and the one that ends last adds them in order.

namespace headrace::cuda {
namespace {

constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;
constexpr unsigned kStrips = 2;  // of a warp
constexpr unsigned kTiles = 4;   // of a warp
static_assert(kWarps == (kBlockStrips / kStrips) * (kBlockRows / kTileRows / kTiles));

constexpr unsigned kRowBytes = 128;  // of a unit of x
constexpr unsigned kRowVectors = kRowBytes / 16;
static_assert(kWarps == kBlockStrips && kWarps * kTileRows == kBlockRows);

template <WeightType kType>
struct Plan {
  static constexpr unsigned kSlots = Unit<kType>::kQuantized     ? 4
                                     : kType == WeightType::kF32 ? 2
                                                                 : 3;
  static constexpr unsigned kBlocks = Unit<kType>::kQuantized ? 1 : 2;  // as registers go
  static constexpr unsigned kWeightBytes = kBlockStrips * Unit<kType>::kBytes;
  static constexpr unsigned kSlotBytes = kWeightBytes + kBlockRows * kRowBytes;
  static constexpr unsigned kSharedBytes = kSlots * kSlotBytes;
  static constexpr unsigned kQuads = kBlockStrips / kQuad;
  static_assert(kQuads * quad_bytes(kBlockRows / kTileRows) <= kSharedBytes);
};

// Where vector `i` of a row of x lies: odd rows the other way round, so that lanes that read four
// vectors of two rows meet no bank twice.
__device__ __forceinline__ unsigned x_at(unsigned row, unsigned i) {
  return row * kRowBytes + (i ^ row % 2 * 4) * 16;
}

// What a thread copies of each unit: a warp has one of the strips and eight rows of x, a lane two
// vectors of these, four rows apart.
struct Copies {
  const unsigned char* weights;  // of the unit asked for next
  const uint16_t* x;
  bool strip;  // there is one
  bool rows[2];
};

__device__ __forceinline__ Copies first_copies(const Product& p, size_t unit_bytes, unsigned strip,
                                               unsigned row, unsigned unit, unsigned lane) {
  const unsigned own = row + lane / kRowVectors;
  return {p.weights + (size_t{strip} * p.units + unit) * unit_bytes + 16 * lane,
          p.x + (size_t{own} * p.units + unit) * 64 + lane % kRowVectors * 8,
          strip < p.strips,
          {own < p.rows, own + 4 < p.rows}};
}

// `to`: the warp's part of a slot.
template <WeightType kType>
__device__ __forceinline__ void request_weights(Copies& from, unsigned char* to, unsigned lane) {
  using Weights = Unit<kType>;
  constexpr unsigned kTail = Weights::kTables * kScaleBytes / 16;
  if (from.strip) {
#pragma unroll
    for (unsigned line = 0; line < Weights::kLines; line++) {
      cp_async16(to + line * kLineBytes + 16 * lane, from.weights + line * kLineBytes);
    }
    if constexpr (kTail != 0) {
      if (lane < kTail) {
        cp_async16(to + Weights::kLines * kLineBytes + 16 * lane,
                   from.weights + Weights::kLines * kLineBytes);
      }
    }
  }
  from.weights += Weights::kBytes;
}

__device__ __forceinline__ void request_x(Copies& from, unsigned char* to, unsigned units,
                                          unsigned lane) {
  unsigned char* own = to + x_at(lane / kRowVectors, lane % kRowVectors);
#pragma unroll
  for (unsigned i = 0; i < 2; i++) {
    const uint16_t* x = from.x + size_t{i} * 4 * 64 * units;
    cp_async16(own + i * 4 * kRowBytes, from.rows[i] ? x : from.x, from.rows[i]);
  }
  from.x += 64;
}

using Sums = float[kStrips][kTiles][4];
constexpr unsigned kBlockSumsBytes = kThreads * sizeof(Sums);

// One unit, for the warp's strips (as many as there are) and tiles of x.
template <WeightType kType>
__device__ __forceinline__ void multiply_unit(Sums& piece, const unsigned char* weights,
                                              const unsigned char* x, unsigned strips,
                                              unsigned first_row, const float2 (&x_sums)[kTiles][2],
                                              unsigned lane) {
  constexpr unsigned kBytes = Unit<kType>::kBytes;
  uint4 line[kStrips] = {};
#pragma unroll
  for (unsigned s = 0; s < kStrips; s++) {
    if (s < strips) line[s] = load_nibbles<kType>(weights + s * kBytes, lane);
  }
#pragma unroll
  for (unsigned h = 0; h < 2; h++) {
    uint4 held[kTiles];
#pragma unroll
    for (unsigned j = 0; j < kTiles; j++) {
      held[j] = ld16(x + x_at(first_row + kTileRows * j + lane / 4, 4 * h + lane % 4));
    }
#pragma unroll
    for (unsigned s = 0; s < kStrips; s++) {
      if (s >= strips) continue;
      add_group<kType>(piece[s], load_group<kType>(weights + s * kBytes, h, lane, line[s]), held,
                       x_sums, h);
    }
  }
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (unsigned i = 0; i < kStrips * kTiles * 4; i++) {
    sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4] = 0;
  }
}

// A piece has ended: total += piece, and the next begins with zero.
__device__ __forceinline__ void add_piece(Sums& total, Sums& piece) {
#pragma unroll
  for (unsigned i = 0; i < kStrips * kTiles * 4; i++) {
    float& sum = piece[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
    total[i / (kTiles * 4)][i / 4 % kTiles][i % 4] += sum;
    sum = 0;
  }
}

// What a warp has of the block's work.
struct Part {
  unsigned number;       // of the part of the result
  unsigned first_strip;  // of the block
  unsigned strip;        // the warp's first, counted from that
  unsigned first_row;    // of x, of the block
  unsigned row;          // the warp's first, counted from that
  unsigned strips;       // that there are of the warp's, none if it has no rows
};

// The pieces that a block takes of K.
struct Share {
  unsigned number;
  unsigned first;  // unit
  unsigned units;
};

// Where the blocks of one part of the result meet.
struct Meeting {
  unsigned char* sums;  // none: one block takes all of K
  uint32_t* counters;
  unsigned of_share;
  unsigned shares;
  unsigned waiting;  // Spread::sums
};

// A block's sums of some piece, a vector a thread and tile; those of rows and strips that there
// are. `store`: to the workspace, else added from there to `sums`.
template <bool kStore>
__device__ __forceinline__ void pass_sums(const Product& p, const Part& part, unsigned char* place,
                                          Sums& sums) {
#pragma unroll
  for (unsigned s = 0; s < kStrips; s++) {
#pragma unroll
    for (unsigned j = 0; j < kTiles; j++) {
      if (s >= part.strips || part.first_row + part.row + kTileRows * j >= p.rows) continue;
      unsigned char* at = place + ((s * kTiles + j) * kThreads + threadIdx.x) * 16;
      float(&sum)[4] = sums[s][j];
      if constexpr (kStore) {
        st16(at, make_uint4(float_bits(sum[0]), float_bits(sum[1]), float_bits(sum[2]),
                            float_bits(sum[3])));
      } else {
        const uint4 v = ld16(at);
        sum[0] += bits_float(v.x);
        sum[1] += bits_float(v.y);
        sum[2] += bits_float(v.z);
        sum[3] += bits_float(v.w);
      }
    }
  }
}

__device__ __forceinline__ unsigned row_blocks_of(const Product& p) {
  return (p.rows + kBlockRows - 1) / kBlockRows;
}

// Shares of a part of the result stand next to each other, and in each the rows of x.
__device__ __forceinline__ Share share_of(const Product& p, const Meeting& meeting) {
  const unsigned number = blockIdx.x / row_blocks_of(p) % meeting.shares;
  const unsigned length = meeting.of_share * p.piece_units;
  const unsigned first = number * length;
  return {number, first, p.units - first < length ? p.units - first : length};
}

__device__ __forceinline__ Part part_of(const Product& p, const Meeting& meeting, unsigned warp) {
  constexpr unsigned kWarpRows = kTiles * kTileRows;
  constexpr unsigned kAcross = kBlockRows / kWarpRows;
  const unsigned row_blocks = row_blocks_of(p);
  const unsigned above = blockIdx.x / (row_blocks * meeting.shares);
  const unsigned across = blockIdx.x % row_blocks;
  Part part = {above * row_blocks + across, above * kBlockStrips,       warp / kAcross * kStrips,
               across * kBlockRows,         warp % kAcross * kWarpRows, 0};
  const unsigned first = part.first_strip + part.strip;
  if (first < p.strips && part.first_row + part.row < p.rows) part.strips = p.strips - first;
  return part;
}

// The sums that a part of the result has in the workspace.
__device__ __forceinline__ unsigned char* sums_of(const Meeting& meeting, const Part& part,
                                                  unsigned number) {
  return meeting.sums + (size_t{part.number} * meeting.waiting + number) * kBlockSumsBytes;
}

// Piece `number` of a share has ended: it is added, or left to who comes last.
__device__ __forceinline__ void end_piece(const Product& p, const Meeting& meeting,
                                          const Part& part, const Share& share, unsigned number,
                                          Sums& total, Sums& piece) {
  if (share.number != 0) {
    const unsigned place = 1 + (share.number - 1) * meeting.of_share + number;
    pass_sums<true>(p, part, sums_of(meeting, part, place), piece);
  }
  add_piece(total, piece);
}

// The end of a block that shares its part of the result. True: it is the last one, and `total` is
// the sum of all pieces. All warps; `arrived` is in shared memory.
__device__ __forceinline__ bool meet(const Product& p, const Meeting& meeting, const Part& part,
                                     const Share& share, Sums& total, uint32_t* arrived) {
  if (share.number == 0) pass_sums<true>(p, part, sums_of(meeting, part, 0), total);
  thread_fence();
  syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* counter = meeting.counters + part.number;
    *arrived = atomic_add(counter, 1u) + 1 == meeting.shares ? 1 : 0;
    if (*arrived != 0) *counter = 0;
  }
  syncthreads();
  const bool last = *arrived != 0;
  syncthreads();
  if (!last) return false;
  thread_fence();
  clear(total);
  for (unsigned i = 0; i < meeting.waiting; i++) {
    pass_sums<false>(p, part, sums_of(meeting, part, i), total);
  }
  return true;
}

// All warps; the ring is free.
__device__ __forceinline__ void finish(const Product& p, const Part& part, const Sums& total,
                                       unsigned char* shared, unsigned lane) {
  constexpr unsigned kQuadBytes = quad_bytes(kBlockRows / kTileRows);
#pragma unroll
  for (unsigned s = 0; s < kStrips; s++) {
#pragma unroll
    for (unsigned j = 0; j < kTiles; j++) {
      const unsigned strip = part.strip + s;
      const unsigned inside = part.row + kTileRows * j;
      if (p.paired) {
        put_tile(p, shared + strip / kQuad * kQuadBytes, part.first_strip + strip, strip % kQuad,
                 part.first_row + inside, inside, total[s][j], lane);
      } else {
        store_tile(p, part.first_strip + strip, part.first_row + inside, total[s][j], lane);
      }
    }
  }
  if (!p.paired || p.out.bf16 == nullptr) return;
  syncthreads();
  for (unsigned i = threadIdx.x / kWarp; i < kBlockStrips / kQuad * (kBlockRows / kTileRows);
       i += kWarps) {
    const unsigned quad = i % (kBlockStrips / kQuad);
    const unsigned inside = i / (kBlockStrips / kQuad) * kTileRows;
    deliver_quad(p, shared + quad * kQuadBytes, part.first_strip * 8 + quad * kQuadColumns,
                 part.first_row + inside, inside, lane);
  }
}

template <WeightType kType>
__global__ void __launch_bounds__(kThreads, Plan<kType>::kBlocks)
    matmul_tile_kernel(Product p, Meeting meeting) {
  using Fit = Plan<kType>;
  HEADRACE_SHARED(unsigned char, shared);
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const Share share = share_of(p, meeting);
  const Part part = part_of(p, meeting, warp);
  Copies copies = first_copies(p, Unit<kType>::kBytes, part.first_strip + warp,
                               part.first_row + warp * kTileRows, share.first, lane);
  unsigned char* const own_weights = shared + warp * Unit<kType>::kBytes;
  unsigned char* const own_x = shared + Fit::kWeightBytes + warp * kTileRows * kRowBytes;

#pragma unroll
  for (unsigned slot = 0; slot + 1 < Fit::kSlots; slot++) {
    if (slot < share.units)
      request_weights<kType>(copies, own_weights + slot * Fit::kSlotBytes, lane);
  }
  grid_dependency_wait();
  grid_dependency_trigger();
#pragma unroll
  for (unsigned slot = 0; slot + 1 < Fit::kSlots; slot++) {
    if (slot < share.units) request_x(copies, own_x + slot * Fit::kSlotBytes, p.units, lane);
    cp_commit();
  }
  Sums piece = {};
  Sums total = {};
  unsigned now = 0;
  unsigned free = (Fit::kSlots - 1) * Fit::kSlotBytes;
  unsigned in_piece = 0;
  unsigned pieces = 0;
  for (unsigned unit = 0; unit < share.units; unit++) {
    cp_wait<Fit::kSlots - 2>();
    syncthreads();
    if (unit + Fit::kSlots - 1 < share.units) {
      request_weights<kType>(copies, own_weights + free, lane);
      request_x(copies, own_x + free, p.units, lane);
    }
    cp_commit();
    if (part.strips != 0) {
      float2 x_sums[kTiles][2];
      load_sums<kType>(x_sums, p, part.first_row + part.row, share.first + unit, lane);
      multiply_unit<kType>(piece, shared + now + part.strip * Unit<kType>::kBytes,
                           shared + now + Fit::kWeightBytes, part.strips, part.row, x_sums, lane);
    }
    if (++in_piece == p.piece_units || unit + 1 == share.units) {
      end_piece(p, meeting, part, share, pieces++, total, piece);
      in_piece = 0;
    }
    free = now;
    now = now + Fit::kSlotBytes < Fit::kSharedBytes ? now + Fit::kSlotBytes : 0;
  }
  cp_wait<0>();
  syncthreads();
  if (meeting.sums != nullptr &&
      !meet(p, meeting, part, share, total, reinterpret_cast<uint32_t*>(shared))) {
    return;
  }
  finish(p, part, total, shared, lane);
}

// Who shares what, as far as the context has memory for it.
Meeting meeting_of(const Product& p, const Context& context) {
  const Spread spread =
      spread_of(p.strips, p.units, p.rows, static_cast<unsigned>(context.processors));
  const size_t bytes = size_t{spread.blocks} * spread.sums() * kBlockSumsBytes;
  if (bytes == 0 || context.counters == nullptr || context.workspace_bytes < bytes)
    return {nullptr, nullptr, p.pieces, 1, 0};
  return {static_cast<unsigned char*>(context.workspace), context.counters, spread.of_share,
          spread.shares, spread.sums()};
}

template <WeightType kType>
cudaError_t launch_tile(const Product& p, const Context& context) {
  const Meeting meeting = meeting_of(p, context);
  const size_t parts = size_t{shares_of(p.rows, kBlockRows)} * shares_of(p.strips, kBlockStrips);
  const size_t blocks = parts * meeting.shares;
  if (blocks > kGridMax) return cudaErrorInvalidValue;
  return launch_dependent("matmul_tile", context.stream, dim3(static_cast<unsigned>(blocks)),
                          dim3(kThreads), Plan<kType>::kSharedBytes, matmul_tile_kernel<kType>, p,
                          meeting);
}

}  // namespace

cudaError_t enqueue_tile(const Product& p, const Context& context) {
  switch (p.type) {
    case WeightType::kF32:
      return launch_tile<WeightType::kF32>(p, context);
    case WeightType::kF16:
      return launch_tile<WeightType::kF16>(p, context);
    case WeightType::kBf16:
      return launch_tile<WeightType::kBf16>(p, context);
    case WeightType::kW8:
      return launch_tile<WeightType::kW8>(p, context);
    case WeightType::kW4:
      return launch_tile<WeightType::kW4>(p, context);
    case WeightType::kW4Min:
      return launch_tile<WeightType::kW4Min>(p, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace headrace::cuda
