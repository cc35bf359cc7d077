#pragma once

#include <cstdint>

#include "protocol/error.h"
#include "protocol/generation.h"

namespace headrace::coordinator {

constexpr float kTemperatureMax = 100;
constexpr float kPenaltyMax = 2;  // presence and frequency, either sign
// A smaller divisor would make infinity of a logit.
constexpr float kRepetitionMin = 0.01f;
constexpr float kRepetitionMax = 10;
constexpr float kBiasMax = 100;  // either sign

// Ok if every field lies in the range that protocol/generation.h states, for a model whose
// vocabulary has `vocab` tokens; else kInvalid with one line that names the field, its value and
// the limit. NaN and infinities are outside of every range. Any top_k is fine.
Status check_sampling(const Sampling& sampling, uint32_t vocab);

}  // namespace headrace::coordinator
