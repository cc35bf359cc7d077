#include "kernels/cpu/attention_plan.h"

#include <doctest/doctest.h>

#include <map>
#include <tuple>

#include "tests/kernels/harness.h"

using namespace headrace::kernels;
using namespace headrace::kernels::testing;

namespace {

// Rows of sequences with the given positions; every sequence has a table of its own.
std::vector<StepRow> rows_of(const std::vector<std::vector<int32_t>>& sequences) {
  static const uint32_t tables[64] = {};
  std::vector<StepRow> rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int32_t p : sequences[s]) rows.push_back({tables + s, p});
  }
  return rows;
}

struct Planned {
  Planned(const std::vector<StepRow>& rows, int threads) {
    op.rows = static_cast<int32_t>(rows.size());
    op.step = rows.data();
    op.heads = 9;
    op.kv.layout = {KvType::kF16, 1, 3, 64, 32};
    memory = std::make_unique<Array<std::byte>>(plan_attention(op, threads, nullptr).bytes);
    plan = plan_attention(op, threads, memory->data());
  }
  Attention op{};
  std::unique_ptr<Array<std::byte>> memory;
  AttentionPlan plan;
};

}  // namespace

TEST_CASE("every slice of every row and head is in exactly one unit") {
  std::vector<int32_t> chunk;
  for (int32_t p = 1000; p < 1021; ++p) chunk.push_back(p);
  const auto rows = rows_of({{0}, {20000}, chunk, {255}, {256}});
  for (int threads : {1, 2, 7}) {
    const Planned p(rows, threads);
    std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;  // row, head, slice
    std::map<int32_t, int32_t> units;
    for (int64_t u = 0; u < p.plan.unit_count; ++u) {
      const AttentionUnit& unit = p.plan.units[u];
      const AttentionTile& tile = p.plan.tiles[unit.tile];
      REQUIRE(unit.first < unit.last);
      ++units[unit.tile];
      for (int32_t r = tile.row; r < tile.row + tile.rows; ++r) {
        REQUIRE(rows[static_cast<size_t>(r)].blocks == rows[static_cast<size_t>(tile.row)].blocks);
        for (int32_t s = unit.first; s < unit.last; ++s) ++seen[{r, tile.kv_head, s}];
      }
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int32_t h = 0; h < 3; ++h) {
        for (int32_t s = 0; s <= rows[r].position / kAttentionSlice; ++s) {
          REQUIRE(seen[{static_cast<int32_t>(r), h, s}] == 1);
        }
      }
    }
    for (const auto& [tile, n] : units) {
      REQUIRE(p.plan.tiles[tile].left == n);
      REQUIRE((p.plan.tiles[tile].partial >= 0) == (n > 1));
    }
    CHECK(p.memory->guarded());
  }
}

TEST_CASE("a long row is cut for several threads, a short step stays with the caller") {
  const auto row = rows_of({{100000}});
  CHECK(Planned(row, 4).plan.unit_count >= 4 * 4);
  CHECK(Planned(row, 1).plan.unit_count == 3);
  const auto tiny = rows_of({{3}});
  const Planned p(tiny, 4);
  CHECK(p.plan.grain >= p.plan.unit_count);
}
