#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/generation.h"
#include "protocol/ids.h"

namespace headrace::cli {

// Strict readings of what a person typed: the whole text, plain decimal, in the range; anything
// else gives nothing. No blanks, no hexadecimal, no infinities, no NaN.
std::optional<int64_t> parse_whole(std::string_view text, int64_t min, int64_t max);
std::optional<double> parse_number(std::string_view text, double min, double max);
// "1,2,3" -> ids; at most kIdsMax of them.
inline constexpr size_t kIdsMax = 1u << 20;
std::optional<std::vector<Token>> parse_ids(std::string_view text);

// "ID=BIAS" -> an id and -100 to 100.
std::optional<LogitBias> parse_bias(std::string_view text);
// 32 hexadecimal digits, not all zero.
std::optional<RequestId> parse_request_id(std::string_view text);

// The same as checks of CLI11 options; the message names the range and what was typed.
CLI::Validator whole(int64_t min, int64_t max);
CLI::Validator number(double min, double max);
CLI::Validator above(double min, double max);  // min itself is not in the range
CLI::Validator endpoint();                     // HOST:PORT
CLI::Validator token_ids();                    // 1,2,3
CLI::Validator bias();                         // ID=BIAS
CLI::Validator request_id();
// Text of so many bytes of UTF-8.
CLI::Validator text_of(size_t bytes_min, size_t bytes_max);

CLI::Validator pd_mode();  // auto, always, never
CLI::Validator on_off();   // on, off; for transform(): what remains is a truth value

}  // namespace headrace::cli
