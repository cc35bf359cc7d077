#include "kernels/cuda/attention_tiles.h"

#include <doctest/doctest.h>

#include <set>
#include <utility>

using namespace headrace;
using cuda::AttentionPlan;
using cuda::AttentionSchedule;
using cuda::AttentionTile;
using kernels::StepRow;

namespace {

constexpr int32_t kSlice = cuda::kCudaSlice;
constexpr int kProcessors = 8;
constexpr size_t kSpace = 1 << 20;
constexpr kernels::KvLayout kLayout{kernels::KvType::kF16, 1, 2, 64, 16, kernels::KvOrder::kRows};

// Rows [from, to) of a sequence whose table is `blocks`.
void add(std::vector<StepRow>& rows, const uint32_t* blocks, int32_t from, int32_t to) {
  for (int32_t p = from; p < to; ++p) rows.push_back({blocks, p});
}

AttentionPlan plan(const std::vector<StepRow>& rows, int32_t heads, size_t space = kSpace,
                   int processors = kProcessors,
                   AttentionSchedule schedule = AttentionSchedule::kAuto) {
  return cuda::plan_attention(rows.data(), static_cast<int32_t>(rows.size()), heads, kLayout,
                              processors, space, schedule);
}

// Every row and head of a group is in one tile, all of a tile's in one sequence, with the slices
// that its last row needs.
void check_covers(const std::vector<StepRow>& rows, int32_t group, const AttentionPlan& p) {
  std::set<std::pair<int32_t, int32_t>> seen;
  for (const auto* tiles : {&p.chunks, &p.tiles}) {
    for (const AttentionTile& tile : *tiles) {
      CHECK(tile.queries >= 1);
      CHECK(tile.queries <=
            (tiles == &p.tiles ? cuda::kAttentionTileQueries : cuda::kAttentionChunkQueries));
      const StepRow& first = rows[static_cast<size_t>(tile.row)];
      int32_t last = -1;
      for (int32_t q = 0; q < tile.queries; ++q) {
        const int32_t row = tile.row + (tile.head + q) / group;
        CHECK(seen.insert({row, (tile.head + q) % group}).second);
        const StepRow& r = rows[static_cast<size_t>(row)];
        CHECK((r.position < 0) == (first.position < 0));
        if (r.position >= 0) CHECK(r.blocks == first.blocks);
        last = r.position;
      }
      CHECK(tile.slices == (last < 0 ? 0 : last / kSlice + 1));
    }
  }
  CHECK(seen.size() == rows.size() * static_cast<size_t>(group));
}

}  // namespace

TEST_CASE("attention tiles: every query once, whatever the group and the rows") {
  const uint32_t a = 0, b = 0, c = 0;
  std::vector<StepRow> rows;
  add(rows, &a, kSlice - 1, kSlice);
  add(rows, &b, kSlice - 10, kSlice + 60);
  add(rows, &c, 5, 8);
  rows.push_back({nullptr, -1});
  rows.push_back({&c, -1});
  for (const int32_t group : {1, 3, 4, 7, 16, 17, 40}) {
    CAPTURE(group);
    for (const auto schedule : {AttentionSchedule::kAuto, AttentionSchedule::kChunks,
                                AttentionSchedule::kTiles, AttentionSchedule::kSplit}) {
      check_covers(rows, group, plan(rows, 2 * group, kSpace, kProcessors, schedule));
    }
  }
  CHECK(plan({}, 2).tiles.empty());
}

TEST_CASE("attention tiles: few queries go by tiles, many by chunks, the longest first") {
  const uint32_t a = 0, b = 0;
  std::vector<StepRow> rows;
  add(rows, &a, 0, cuda::kAttentionFewQueries);
  CHECK(plan(rows, 2).chunks.empty());
  CHECK(plan(rows, 2).tiles.size() == 2);
  add(rows, &a, cuda::kAttentionFewQueries, 3 * kSlice);
  add(rows, &b, 0, 1);
  const AttentionPlan p = plan(rows, 2);
  CHECK(p.tiles.size() == 1);
  REQUIRE(p.chunks.size() == 6);
  for (size_t i = 1; i < p.chunks.size(); ++i) {
    CHECK(p.chunks[i - 1].slices >= p.chunks[i].slices);
  }
}

TEST_CASE("attention tiles: split when processors would idle, within the space there is") {
  const uint32_t tables[20] = {};
  std::vector<StepRow> rows;
  add(rows, &tables[0], 5 * kSlice, 5 * kSlice + 1);
  add(rows, &tables[1], 9, 10);
  add(rows, &tables[2], 2 * kSlice, 2 * kSlice + 1);
  const AttentionPlan p = plan(rows, 8);
  REQUIRE(p.tiles.size() == 3);
  CHECK(p.spread == 6);
  CHECK(p.tiles[0].partials == 0);
  CHECK(p.tiles[1].partials < 0);
  CHECK(p.tiles[2].partials == 6 * 4 * 2);
  CHECK(p.tiles[2].counter == 2);
  // Enough for the second alone.
  const auto row = sizeof(float) * static_cast<size_t>(cuda::attention_partial_floats(64));
  const AttentionPlan tight = plan(rows, 8, 3 * 4 * 2 * row);
  CHECK(tight.tiles[0].partials < 0);
  CHECK(tight.tiles[2].partials == 0);
  CHECK(tight.spread == 3);
  CHECK(plan(rows, 8, 3 * 4 * 2 * row - 1).tiles[2].partials < 0);
  for (size_t i = 3; i < 8; ++i) add(rows, &tables[i], 400, 401);
  CHECK(plan(rows, 8).tiles[0].partials < 0);  // 8 tiles of 2 heads keep 8 processors busy
}

TEST_CASE("attention tiles: all that plans may want is stated") {
  const uint32_t tables[8] = {};
  std::vector<StepRow> rows;
  for (const uint32_t& table : tables) add(rows, &table, 1000, 1001);
  rows.pop_back();
  const size_t space = cuda::attention_workspace(kLayout, 1001, kProcessors);
  CHECK(space == size_t{16} * 16 * 8 * 72 * 4);
  const AttentionPlan p = plan(rows, 32, space);
  for (const AttentionTile& tile : p.tiles) {
    CHECK(tile.partials >= 0);
    CHECK(tile.counter + kLayout.kv_heads <= cuda::attention_counters(kProcessors));
  }
  CHECK(cuda::attention_workspace(kLayout, 1 << 24, 132) == cuda::kAttentionWorkspaceMax);
}
