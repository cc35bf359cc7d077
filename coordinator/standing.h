#pragma once

#include <algorithm>
#include <cstdint>

#include "coordinator/limits.h"

namespace headrace::coordinator {

// What a connection has shown of itself: whether it takes the answers that it asks for. Those of
// who does are given out before those of strangers, and take no part in what these share. Trust is
// counted in answers and is earned: each answer of which something was taken is worth one that runs
// and of which nothing is taken yet; each that was made and not taken halves it. Pure.
class Standing {
 public:
  // It asks for one more answer. True: it is known, false: a stranger for this one.
  bool ask() { return unheard_++ < trust_; }
  // It took something of one of those for the first time.
  void took() {
    --unheard_;
    trust_ = std::min(trust_ + 1, kTrustMax);
  }
  // One of those ended, of which it took nothing; `offered`: though it was sent something.
  void over(bool offered) {
    --unheard_;
    if (offered) trust_ /= 2;
  }

  bool trusted() const { return trust_ > 0; }

 private:
  uint32_t trust_ = 0;    // answers it may have unheard and be known
  uint32_t unheard_ = 0;  // it asked for, and took nothing of yet
};

}  // namespace headrace::coordinator
