#pragma once

#include <cstdint>

#include "protocol/ids.h"

namespace headrace {

// Source of ids, keys and jitter; never of sampling noise, which is counter-based.
class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t next() = 0;

  // A fresh id of any 128-bit kind; never all zero.
  template <class Id>
  Id mint() {
    Id id;
    id.hi = next();
    id.lo = next() | 1;
    return id;
  }
};

// The kernel's generator. Thread-safe.
class OsRandom final : public Random {
 public:
  uint64_t next() override;
};

// SplitMix64 from one seed: the simulator's and the tests' source.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() override;

 private:
  uint64_t state_;
};

}  // namespace headrace
