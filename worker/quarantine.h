#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "protocol/ids.h"
#include "protocol/result.h"
#include "protocol/strand.h"
#include "worker/block_pool.h"

namespace headrace::worker {

// Blocks into which a writer that could not be stopped may still write: neither readable nor
// reusable until it has provably stopped. Nobody else frees them; a worker that has too many or
// waits too long is sick (README.md) and has to be started again, which ends the writer with the
// process.
//
// The transports that exist read by themselves and can always be stopped: with them this is empty.
class Quarantine {
 public:
  static constexpr uint32_t kOneBlockIn = 50;  // 2 % of the pool
  static constexpr size_t kTransfers = 8;
  static constexpr Duration kAge = 10s;

  explicit Quarantine(BlockPool& pool) : pool_(pool) {}

  // Takes over the blocks of a transfer, held as incoming, whose writer did not stop.
  void add(TransferId transfer, std::vector<BlockRef> blocks, Instant now);
  // Its writer has stopped: the blocks are free. Unknown: nothing. Returns how many became free.
  uint32_t stopped(TransferId transfer);
  // Not ok, naming the limit: too much is in here, or for too long.
  Status health(Instant now) const;

  uint32_t blocks() const { return blocks_; }
  size_t transfers() const { return kept_.size(); }

 private:
  struct Kept {
    std::vector<BlockRef> blocks;
    Instant since{};
  };
  BlockPool& pool_;
  std::map<TransferId, Kept> kept_;
  uint32_t blocks_ = 0;
};

}  // namespace headrace::worker
