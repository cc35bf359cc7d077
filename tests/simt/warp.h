#pragma once

#include <cstdint>
#include <vector>

#include "tests/simt/lane.h"

namespace headrace::simt {

// A warp collective as one lane calls it.
struct Meeting {
  const char* name = "";
  uint32_t mask = 0;
  bool orders_memory = false;  // of the lanes that meet: syncwarp alone
  // Runs when all lanes are there; operands[lane] is what that lane brought.
  void (*combine)(void* const* operands, uint32_t mask) = nullptr;
  void* operand = nullptr;
};

// Where lanes of one warp meet: by mask, in the same line.
class Warp {
 public:
  void begin(uint32_t lanes);
  void arrive(Lane& lane, const Meeting& meeting);
  void end(const Lane& lane);

 private:
  struct Open {
    Meeting meeting;
    Site at;
    uint32_t arrived = 0;
    void* operands[kWarpLanes] = {};
  };

  void complete(Block& block, const Lane& lane, const Open& open);

  uint32_t alive_ = 0;
  std::vector<Open> open_;
  std::vector<Lane*> met_;
  // Words for the sanitizer, by mask: groups of other masks are not ordered by a meeting.
  static constexpr unsigned kWords = 13;
  char words_[kWords] = {};
};

}  // namespace headrace::simt
