#include "deploy/cli/kv_room.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

// A block of 16 tokens has 1,000 bytes of KV and 16 x 6 floats of rotations.
constexpr KvRoom kRoom{.block_bytes = 1000, .block_tokens = 16, .context = 70, .rotated = 6};

TEST_CASE("rotations: of the positions in the blocks, up to the context") {
  CHECK(kRoom.rope_bytes(0) == 0);
  CHECK(kRoom.rope_bytes(1) == 16 * 6 * 4);
  CHECK(kRoom.rope_bytes(4) == 64 * 6 * 4);
  CHECK(kRoom.rope_bytes(5) == 70 * 6 * 4);
  CHECK(kRoom.rope_bytes(1'000'000) == 70 * 6 * 4);
}

TEST_CASE("blocks: all that fit with their rotations, and no more") {
  uint64_t most = 0;
  for (uint64_t memory = 0; memory < 20'000; ++memory) {
    const uint64_t blocks = kRoom.blocks(memory);
    REQUIRE(blocks * 1000 + kRoom.rope_bytes(blocks) <= memory);
    REQUIRE((blocks + 1) * 1000 + kRoom.rope_bytes(blocks + 1) > memory);
    most = blocks;
  }
  CHECK(most == 18);  // beside the table of the context, 1,680 bytes
}

TEST_CASE("a context whose rotations alone do not fit keeps out no block") {
  const KvRoom long_one{.block_bytes = 1000, .block_tokens = 16, .context = 1 << 20, .rotated = 6};
  CHECK(long_one.blocks(1383) == 0);
  CHECK(long_one.blocks(1384) == 1);
}

}  // namespace
}  // namespace headrace::cli
