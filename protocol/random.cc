#include "protocol/random.h"

#include <sys/random.h>

#include "protocol/check.h"

namespace headrace {

uint64_t OsRandom::next() {
  uint64_t value = 0;
  // Eight bytes are never cut short; only a signal that arrives before the pool is ready
  // interrupts.
  ssize_t got = 0;
  do {
    got = getrandom(&value, sizeof value, 0);
  } while (got < 0);
  CHECK(got == sizeof value);
  return value;
}

uint64_t SeededRandom::next() {
  state_ += 0x9E3779B97F4A7C15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace headrace
