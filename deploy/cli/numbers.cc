#include "deploy/cli/numbers.h"

#include <charconv>
#include <cmath>

#include "coordinator/router.h"
#include "coordinator/utf8.h"
#include "protocol/link.h"

namespace headrace::cli {

namespace {

constexpr double kBiasMax = 100;

}  // namespace

std::optional<int64_t> parse_whole(std::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || at != end || value < min || value > max) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text, double min, double max) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, value);
  if (at != end || text.empty()) return std::nullopt;
  // Too small for a double is as good as nothing; too large is not a number we take.
  if (failure == std::errc::result_out_of_range) {
    if (text.find("e-") == text.npos && text.find("E-") == text.npos) return std::nullopt;
    value = 0;
  } else if (failure != std::errc()) {
    return std::nullopt;
  }
  if (!std::isfinite(value) || value < min || value > max) return std::nullopt;
  return value;
}

std::optional<std::vector<Token>> parse_ids(std::string_view text) {
  std::vector<Token> ids;
  while (true) {
    const size_t comma = text.find(',');
    const auto id = parse_whole(text.substr(0, comma), 0, INT32_MAX);
    if (!id || ids.size() == kIdsMax) return std::nullopt;
    ids.push_back(static_cast<Token>(*id));
    if (comma == text.npos) return ids;
    text.remove_prefix(comma + 1);
  }
}

std::optional<LogitBias> parse_bias(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == text.npos) return std::nullopt;
  const auto id = parse_whole(text.substr(0, equals), 0, INT32_MAX);
  const auto value = parse_number(text.substr(equals + 1), -kBiasMax, kBiasMax);
  if (!id || !value) return std::nullopt;
  return LogitBias{static_cast<Token>(*id), static_cast<float>(*value)};
}

std::optional<RequestId> parse_request_id(std::string_view text) {
  constexpr size_t kHalf = 16;
  uint64_t halves[2] = {};
  if (text.size() != 2 * kHalf) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const char* begin = text.data() + i * kHalf;
    const auto [at, failure] = std::from_chars(begin, begin + kHalf, halves[i], 16);
    if (failure != std::errc() || at != begin + kHalf) return std::nullopt;
  }
  if (halves[0] == 0 && halves[1] == 0) return std::nullopt;
  return RequestId{halves[0], halves[1]};
}

namespace {

std::string short_form(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

// What was typed, cut so that an error stays one line.
std::string shown(const std::string& text) {
  constexpr size_t kShownMax = 40;
  return "'" + (text.size() > kShownMax ? text.substr(0, kShownMax) + "..." : text) + "'";
}

}  // namespace

CLI::Validator whole(int64_t min, int64_t max) {
  const std::string range = std::to_string(min) + " to " + std::to_string(max);
  return CLI::Validator(
      [=](std::string& text) {
        if (parse_whole(text, min, max)) return std::string();
        return "takes a whole number from " + range + ", not " + shown(text);
      },
      "", "whole");
}

CLI::Validator number(double min, double max) {
  const std::string range = short_form(min) + " to " + short_form(max);
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse_number(text, min, max);
        if (!value) return "takes a number from " + range + ", not " + shown(text);
        if (*value == 0) text = "0";  // subnormal texts would be refused by the conversion
        return std::string();
      },
      "", "number");
}

CLI::Validator above(double min, double max) {
  const std::string range = "above " + short_form(min) + ", up to " + short_form(max);
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse_number(text, min, max);
        if (value && *value > min) return std::string();
        return "takes a number " + range + ", not " + shown(text);
      },
      "", "above");
}

CLI::Validator bias() {
  return CLI::Validator(
      [](std::string& text) {
        if (parse_bias(text)) return std::string();
        return "takes ID=BIAS with a bias from -100 to 100, not " + shown(text);
      },
      "", "bias");
}

CLI::Validator request_id() {
  return CLI::Validator(
      [](std::string& text) {
        if (parse_request_id(text)) return std::string();
        return "takes 32 hexadecimal digits, not all zero, not " + shown(text);
      },
      "", "request_id");
}

CLI::Validator text_of(size_t bytes_min, size_t bytes_max) {
  return CLI::Validator(
      [=](std::string& text) {
        if (text.empty() && bytes_min > 0) return std::string("takes a text that is not empty");
        if (text.size() > bytes_max)
          return "takes at most " + std::to_string(bytes_max) + " bytes, not " +
                 std::to_string(text.size());
        const size_t bad = coordinator::first_invalid_utf8(text);
        return bad == std::string::npos ? std::string()
                                        : "takes UTF-8, which ends at byte " + std::to_string(bad);
      },
      "", "text");
}

CLI::Validator endpoint() {
  return CLI::Validator(
      [](std::string& text) {
        const auto parsed = parse_endpoint(text);
        return parsed ? std::string() : "takes HOST:PORT: " + parsed.error().message;
      },
      "", "endpoint");
}

CLI::Validator token_ids() {
  return CLI::Validator(
      [](std::string& text) {
        if (parse_ids(text)) return std::string();
        return "takes token ids like 1,2,3 (at most " + std::to_string(kIdsMax) + "), not " +
               shown(text);
      },
      "", "token_ids");
}

CLI::Validator on_off() {
  return CLI::Validator(
      [](std::string& text) {
        if (text != "on" && text != "off") return "takes on or off, not " + shown(text);
        text = text == "on" ? "true" : "false";
        return std::string();
      },
      "", "on_off");
}

CLI::Validator pd_mode() {
  return CLI::Validator(
      [](std::string& text) {
        const auto mode = coordinator::parse_pd_mode(text);
        return mode ? std::string() : mode.error().message;
      },
      "", "pd");
}

}  // namespace headrace::cli
