#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/simt/lane.h"

namespace headrace::simt {

// The barriers in a block's shared memory and the bulk copies that report to them.
class Bulk {
 public:
  static constexpr unsigned kBarriersMax = 64;  // a block's, at one time

  void begin();
  void init(Lane& lane, uint64_t* bar, uint32_t arrivals);
  void fence();
  void invalidate(const Lane& lane, uint64_t* bar);
  void arrive(Lane& lane, uint64_t* bar, uint32_t bytes);
  void wait(Lane& lane, uint64_t* bar, uint32_t parity);
  void copy(Lane& lane, const BulkCopy& copy);
  // Does one held copy; false: none.
  bool run_one(Block& block);
  // The block has ended: nothing may be pending or unseen.
  void check_end(const Lane& lane) const;

 private:
  struct Barrier {
    uint64_t* word = nullptr;
    uint32_t arrivals = 0;  // of a phase
    uint32_t pending = 0;
    int64_t bytes = 0;
    uint32_t phase = 0;
    bool fenced = false;
    bool has_bytes = false;  // this phase counts bytes
    bool unseen = false;     // bytes of the last phase came, and no thread waited for it
    Site at;
    char words[2] = {};  // for the sanitizer, by the phase's parity
  };
  struct Held {
    BulkCopy copy;
    Lane* lane = nullptr;
  };

  Barrier& find(const Lane& lane, uint64_t* bar);
  void settle(Block& block, Barrier& barrier);
  void done(const Lane& lane, Barrier& barrier, uint32_t bytes);

  std::array<Barrier, kBarriersMax> barriers_;
  std::vector<Held> held_;
};

}  // namespace headrace::simt
