#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/matmul_tiles.h"

namespace headrace::kernels {
namespace {

// A body that computes nothing: it notes which (token, row) it was asked for.
struct Seen {
  std::mutex mutex;
  const float* y = nullptr;
  int64_t stride = 0;
  std::map<std::pair<int64_t, int64_t>, int> cells;  // (token, row) -> times
  int most_tokens = 0;
  int most_tiles = 0;
  int misplaced = 0;
} seen;

void note(const TileJob& job) {
  const std::lock_guard lock(seen.mutex);
  seen.most_tokens = std::max(seen.most_tokens, job.tokens);
  seen.most_tiles = std::max(seen.most_tiles, job.tiles);
  const int64_t at = job.y - seen.y;
  for (int t = 0; t < job.tokens; t++)
    for (int r = 0; r < job.rows; r++) ++seen.cells[{at / seen.stride + t, at % seen.stride + r}];
}

TEST_CASE("every row of every token is in exactly one piece") {
  alignas(64) static std::byte weights[64];
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int tokens : {1, 2, 7, 12, 13, 40, 128}) {
      for (const int rows : {1, 31, 32, 33, 200, 1000}) {
        CAPTURE(threads);
        CAPTURE(tokens);
        CAPTURE(rows);
        std::vector<QuantBlock> x(static_cast<size_t>(tokens) * 2);
        std::vector<float> y(1);
        MatMul op{.w = {WeightType::kW4, rows, 64, weights},
                  .x = {.q = x.data()},
                  .rows = tokens,
                  .y = y.data(),
                  .stride = rows + 5,
                  .add = false};
        std::vector<std::byte> scratch(matmul_scratch_bytes(op, 8, false));
        seen.cells.clear();
        seen.most_tokens = 0;
        seen.y = op.y;
        seen.stride = op.stride;
        run_tiles(op, pool, scratch.data(), {.run = note, .quant_tokens = 12, .float_tokens = 6},
                  {});
        CHECK(seen.cells.size() == static_cast<size_t>(tokens) * static_cast<size_t>(rows));
        CHECK(std::all_of(seen.cells.begin(), seen.cells.end(),
                          [](const auto& cell) { return cell.second == 1; }));
        CHECK(seen.most_tokens <= 12);
      }
    }
  }
}

// Who is told which results: (token, row) -> times; with panels, jobs must not overrun theirs.
void heard(const void* op, const TileResults& results) {
  const std::lock_guard lock(seen.mutex);
  const auto* product = static_cast<const MatMul*>(op);
  for (int t = 0; t < results.tokens; t++) {
    for (int n = 0; n < results.rows; n++) {
      ++seen.cells[{results.token + t, results.row + n}];
      const float* at = results.y + t * results.stride + n;
      if (product->y != nullptr)
        seen.misplaced +=
            at != product->y + (results.token + t) * product->stride + results.row + n;
    }
  }
  seen.misplaced += product->w.paired && (results.rows % 64 != 0 || results.row % 64 != 0);
}

void write(const TileJob& job) {
  for (int t = 0; t < job.tokens; t++) std::fill_n(job.y + t * job.stride, job.rows, 1.0f);
  if (job.panel != nullptr)
    std::fill_n(job.panel, static_cast<size_t>(job.tiles * job.units) * kPanelUnit, std::byte{1});
}

TEST_CASE("an epilogue is told every result once, where it stands, in whole pairs of tiles") {
  alignas(64) static std::byte weights[64];
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int tokens : {1, 2, 12, 16, 17, 40, 128}) {
      for (const int rows : {64, 128, 640, 1920}) {
        for (const int cols : {64, 20000}) {
          for (const bool pairs : {false, true}) {
            if (cols > 64 && (tokens % 16 != 1 || rows > 128)) continue;
            CAPTURE(tokens);
            CAPTURE(rows);
            CAPTURE(pairs);
            std::vector<QuantBlock> x(static_cast<size_t>(tokens) * static_cast<size_t>(cols) / 32);
            std::vector<float> y(pairs ? 0 : static_cast<size_t>(tokens * (rows + 5)));
            const MatMul op{.w = {WeightType::kW4, rows, cols, weights, Tiling::kLanes, pairs},
                            .x = {.q = x.data()},
                            .rows = tokens,
                            .y = pairs ? nullptr : y.data(),
                            .stride = rows + 5,
                            .add = false};
            std::vector<std::byte> scratch(matmul_scratch_bytes(op, threads, pairs));
            seen.cells.clear();
            seen.misplaced = 0;
            run_tiles(op, pool, scratch.data(),
                      {.run = write, .quant_tokens = 16, .float_tokens = 6, .panels = true},
                      {heard, &op, pairs});
            CHECK(seen.cells.size() == static_cast<size_t>(tokens) * static_cast<size_t>(rows));
            CHECK(std::all_of(seen.cells.begin(), seen.cells.end(),
                              [](const auto& cell) { return cell.second == 1; }));
            CHECK(seen.misplaced == 0);
          }
        }
      }
    }
  }
}

std::vector<std::byte> packed;

void keep(const TileJob& job) {
  packed.assign(job.x, job.x + job.tokens * kQuantTokenBytes * job.units);
}

TEST_CASE("activations are packed unit by unit, with what the integer sum begins with") {
  alignas(64) static std::byte weights[64];
  ThreadPool pool(1);
  std::vector<QuantBlock> x(2 * 2);  // 2 tokens of 2 units
  for (size_t i = 0; i < x.size(); i++) {
    for (int k = 0; k < kGroup; k++) x[i].q[k] = static_cast<int8_t>(i * 32 + k - 64);
    x[i].scale = 0.5f + static_cast<float>(i);
    x[i].sum = static_cast<int32_t>(10 + i);
  }
  float y[64];
  MatMul op{.w = {WeightType::kW8, 32, 64, weights},
            .x = {.q = x.data()},
            .rows = 2,
            .y = y,
            .stride = 32,
            .add = false};
  std::vector<std::byte> scratch(matmul_scratch_bytes(op, 8, false));
  run_tiles(op, pool, scratch.data(), {.run = keep, .quant_tokens = 12, .float_tokens = 6}, {});
  REQUIRE(packed.size() == 2 * 2 * static_cast<size_t>(kQuantTokenBytes));
  for (int unit = 0; unit < 2; unit++) {
    const std::byte* at = packed.data() + unit * 2 * kQuantTokenBytes;
    for (int token = 0; token < 2; token++) {
      const QuantBlock& b = x[static_cast<size_t>(token * 2 + unit)];
      CHECK(std::memcmp(at + token * kGroup, b.q, kGroup) == 0);
      float scale;
      int32_t start;
      std::memcpy(&scale, at + 2 * kGroup + 4 * token, 4);
      std::memcpy(&start, at + 2 * kGroup + 4 * (2 + token), 4);
      CHECK(scale == b.scale);
      CHECK(start == -128 * b.sum);
    }
  }
}

}  // namespace
}  // namespace headrace::kernels
