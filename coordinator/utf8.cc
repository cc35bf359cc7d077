#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

Utf8Scanner::Step Utf8Scanner::take(uint8_t byte) {
  if (missing_ > 0) {
    if (byte < low_ || byte > high_) {
      missing_ = 0;
      return Step::kBroken;
    }
    low_ = 0x80;
    high_ = 0xBF;
    return --missing_ == 0 ? Step::kWhole : Step::kMore;
  }
  if (byte < 0x80) return Step::kWhole;
  if (byte < 0xC2 || byte > 0xF4) return Step::kNever;
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  return Step::kMore;
}

size_t first_invalid_utf8(std::string_view text) {
  Utf8Scanner scanner;
  size_t start = 0;  // of the character being read
  for (size_t i = 0; i < text.size(); ++i) {
    const auto step = scanner.take(static_cast<uint8_t>(text[i]));
    if (step == Utf8Scanner::Step::kBroken || step == Utf8Scanner::Step::kNever) return start;
    if (step == Utf8Scanner::Step::kWhole) start = i + 1;
  }
  return scanner.inside() ? start : std::string_view::npos;
}

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0xC0) return {lead, 1};
  const uint32_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes > text.size() - at) return {lead, 1};
  uint32_t value = lead & (0xFFu >> (bytes + 1));
  for (uint32_t i = 1; i < bytes; ++i) {
    value = value << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3F);
  }
  return {value, bytes};
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += !is_continuation(c);
  return count;
}

size_t bytes_of_code_points(std::string_view text, size_t count) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (is_continuation(text[at])) continue;
    if (count == 0) break;
    --count;
  }
  return at;
}

void append_code_point(std::string& out, uint32_t value) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((value >> shift) & 0x3F)); };
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else if (value < 0x800) {
    out += static_cast<char>(0xC0 | value >> 6);
    tail(0);
  } else if (value < 0x10000) {
    out += static_cast<char>(0xE0 | value >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | value >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

void Utf8Repair::feed(std::string_view bytes, std::string& out) {
  for (char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    auto step = scanner_.take(byte);
    if (step == Utf8Scanner::Step::kBroken) {
      held_.clear();
      out += kReplacement;
      step = scanner_.take(byte);
    }
    if (step == Utf8Scanner::Step::kNever) {
      out += kReplacement;
      continue;
    }
    held_ += c;
    if (step == Utf8Scanner::Step::kWhole) {
      out += held_;
      held_.clear();
    }
  }
}

void Utf8Repair::finish(std::string& out) {
  if (!held_.empty()) out += kReplacement;
  held_.clear();
  scanner_ = {};
}

}  // namespace headrace::coordinator
