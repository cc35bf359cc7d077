#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/bodies.h"
#include "kernels/cpu/matmul_tiles.h"

namespace headrace::kernels {
namespace {

// Weights that stay in the second-level cache while groups of tokens pass over them.
constexpr size_t kResidentBytes = 512 << 10;
// Less work than this many multiply-adds is not worth waking another thread for.
constexpr int64_t kSharedWork = 64 << 10;
constexpr int kPackedAlone = 8;  // tokens that the caller packs by itself

size_t token_bytes(WeightType type) {
  return quantized(type) ? kQuantTokenBytes : kFloatTokenBytes;
}

size_t packed_bytes(const MatMul& op) {
  const size_t bytes =
      static_cast<size_t>(op.rows) * static_cast<size_t>(op.w.units()) * token_bytes(op.w.type);
  return (bytes + 63) / 64 * 64;
}

// Tiles that groups of tokens pass over in turn.
int resident_tiles(const MatMul& op) {
  return std::max(1, static_cast<int>(kResidentBytes / std::max<size_t>(op.w.tile_bytes(), 1)));
}

// Tiles of a paired matrix whose results wait in scratch for their epilogue: few enough for a
// cache.
constexpr int kPairedTiles = 16;

int most_tiles(const MatMul& op, bool pairs) {
  const int tiles = resident_tiles(op);
  return pairs ? std::clamp(tiles / 2 * 2, 2, kPairedTiles) : tiles;
}

// As bytes; none for what is one group where panels are used.
size_t panel_bytes(const MatMul& op, bool pairs) {
  if (op.rows <= kPanelTokens || !quantized(op.w.type)) return 0;
  return static_cast<size_t>(std::min(most_tiles(op, pairs), op.w.tiles())) *
         static_cast<size_t>(op.w.units()) * kPanelUnit;
}

size_t result_bytes(bool pairs) {
  return pairs ? sizeof(float) * kPairedTiles * kTileRows * kPanelTokens : 0;
}

// How tokens fall into groups of nearly the same size.
struct Groups {
  int tokens;
  int count;
  Groups(int rows, int most) : tokens(rows), count((rows + most - 1) / most) {}
  int begin(int g) const { return static_cast<int>(int64_t{tokens} * g / count); }
};

void pack_quant(const MatMul& op, int first, int count, std::byte* to) {
  const int units = op.w.units();
  const int zero = op.w.type == WeightType::kW8 ? -128 : op.w.type == WeightType::kW4 ? -8 : 0;
  for (int u = 0; u < units; u++) {
    std::byte* unit = to + static_cast<size_t>(u) * static_cast<size_t>(count * kQuantTokenBytes);
    std::byte* tail = unit + count * kGroup;
    for (int t = 0; t < count; t++) {
      const QuantBlock& b = op.x.q[int64_t{first + t} * units + u];
      const int32_t start = zero * b.sum;
      const float low = b.scale * static_cast<float>(b.sum);
      std::memcpy(unit + t * kGroup, b.q, kGroup);
      std::memcpy(tail + 4 * t, &b.scale, 4);
      std::memcpy(tail + 4 * (count + t), &start, 4);
      std::memcpy(tail + 4 * (2 * count + t), &low, 4);
    }
  }
}

void pack_float(const MatMul& op, int first, int count, std::byte* to) {
  auto* out = reinterpret_cast<float*>(to);
  const int64_t cols = op.w.cols;
  for (int t = 0; t < count; t++) {
    const float* x = op.x.f32 + (first + t) * cols;
    for (int64_t k = 0; k < cols; k++) out[k * count + t] = x[k];
  }
}

class Schedule {
 public:
  Schedule(const MatMul& op, std::byte* scratch, const TilePath& path, const Epilogue& after)
      : op_(op),
        scratch_(scratch),
        path_(path),
        after_(after),
        groups_(op.rows, quantized(op.w.type) ? path.quant_tokens : path.float_tokens) {}

  void pack(ThreadPool& pool) {
    auto f = [this](int64_t begin, int64_t end, int) {
      for (auto g = static_cast<int>(begin); g < end; g++) {
        const int first = groups_.begin(g);
        const int count = groups_.begin(g + 1) - first;
        if (quantized(op_.w.type))
          pack_quant(op_, first, count, packed(g));
        else
          pack_float(op_, first, count, packed(g));
      }
    };
    if (op_.rows <= kPackedAlone) return f(0, groups_.count, 0);
    parallel_for(pool, groups_.count, 1, f);
  }

  // Behind the packed activations lies each thread's own: its panel, its results.
  void multiply(ThreadPool& pool) {
    const int tiles = op_.w.tiles();
    const int threads = pool.threads();
    // With few tiles the tokens are cut as well.
    bands_ = std::clamp(4 * threads / tiles, 1, groups_.count);
    auto f = [this, tiles](int64_t begin, int64_t end, int thread) {
      while (begin < end) {
        const auto band = static_cast<int>(begin / tiles);
        const int64_t stop = std::min(end, int64_t{band + 1} * tiles);
        piece(band, static_cast<int>(begin - int64_t{band} * tiles),
              static_cast<int>(stop - int64_t{band} * tiles), thread);
        begin = stop;
      }
    };
    const int64_t work = int64_t{tiles} * kTileRows * op_.w.cols * op_.rows;
    const int64_t all = int64_t{tiles} * bands_;
    parallel_for(pool, all, work < kSharedWork ? all : after_.pairs ? 2 : 1, f);
  }

 private:
  std::byte* packed(int g) const {
    return scratch_ + static_cast<size_t>(groups_.begin(g)) * static_cast<size_t>(op_.w.units()) *
                          token_bytes(op_.w.type);
  }

  std::byte* own(int thread) const {
    return scratch_ + packed_bytes(op_) +
           static_cast<size_t>(thread) *
               (panel_bytes(op_, after_.pairs) + result_bytes(after_.pairs));
  }

  std::byte* panel(int thread) const {
    return path_.panels && quantized(op_.w.type) ? own(thread) : nullptr;
  }

  // Where results of `tiles` tiles from `tile` on go, and how far apart those of two tokens are.
  struct Place {
    float* y;
    int64_t stride;
  };
  Place place(int thread, int token, int tile, int tiles) const {
    if (!after_.pairs) return {op_.y + token * op_.stride + int64_t{tile} * kTileRows, op_.stride};
    std::byte* results = own(thread) + panel_bytes(op_, true);
    return {reinterpret_cast<float*>(results), int64_t{tiles} * kTileRows};
  }

  void piece(int band, int begin, int end, int thread) {
    const size_t tile_bytes = op_.w.tile_bytes();
    const int first = static_cast<int>(int64_t{groups_.count} * band / bands_);
    const int last = static_cast<int>(int64_t{groups_.count} * (band + 1) / bands_);
    int step = end - begin;
    if (last - first > 1 || after_.pairs) step = std::min(most_tiles(op_, after_.pairs), step);
    for (int tile = begin; tile < end; tile += step) {
      const int tiles = std::min(step, end - tile);
      const int rows = std::min(tiles * kTileRows, op_.w.rows - tile * kTileRows);
      for (int g = first; g < last; g++) {
        const int token = groups_.begin(g);
        const int tokens = groups_.begin(g + 1) - token;
        const Place to = place(thread, token, tile, tiles);
        path_.run({.type = op_.w.type,
                   .w = op_.w.data + tile_bytes * static_cast<size_t>(tile),
                   .tile_bytes = tile_bytes,
                   .tiles = tiles,
                   .cols = op_.w.cols,
                   .units = op_.w.units(),
                   .x = packed(g),
                   .tokens = tokens,
                   .y = to.y,
                   .stride = to.stride,
                   .rows = rows,
                   .add = op_.add,
                   .cold = g == first,
                   .panel = last - first > 1 ? panel(thread) : nullptr});
        if (after_.run == nullptr) continue;
        after_.run(after_.op, {.y = to.y,
                               .stride = to.stride,
                               .token = token,
                               .tokens = tokens,
                               .row = tile * kTileRows,
                               .rows = rows});
      }
    }
  }

  const MatMul& op_;
  std::byte* scratch_;
  const TilePath& path_;
  const Epilogue& after_;
  Groups groups_;
  int bands_ = 1;  // parts of the token groups
};

}  // namespace

size_t matmul_scratch_bytes(const MatMul& op, int threads, bool pairs) {
  return packed_bytes(op) +
         static_cast<size_t>(threads) * (panel_bytes(op, pairs) + result_bytes(pairs));
}

void run_tiles(const MatMul& op, ThreadPool& pool, std::byte* scratch, const TilePath& path,
               const Epilogue& after) {
  KERNELS_CHECK(op.stride >= op.w.rows);
  KERNELS_CHECK(quantized(op.w.type) ? op.x.q != nullptr : op.x.f32 != nullptr);
  KERNELS_CHECK(op.w.paired == after.pairs && path.quant_tokens <= kPanelTokens);
  if (op.rows <= 0 || op.w.rows <= 0) return;
  Schedule schedule(op, scratch, path, after);
  schedule.pack(pool);
  schedule.multiply(pool);
}

}  // namespace headrace::kernels
