#include "worker/engine.h"

#include <algorithm>

#include "protocol/check.h"

namespace headrace::worker {

bool follow(Step& prepared, std::span<const Token> sampled) {
  for (StepSequence& s : prepared.sequences) {
    if (!s.follows) continue;
    CHECK(*s.follows < sampled.size() && s.tokens.size() == 1);
    const Token token = sampled[*s.follows];
    if (token == StepDone::kNumeric) return false;
    CHECK(token >= 0);  // it was asked for
    if (std::find(s.end_tokens.begin(), s.end_tokens.end(), token) != s.end_tokens.end())
      return false;
    s.tokens.front() = token;
  }
  return true;
}

}  // namespace headrace::worker
