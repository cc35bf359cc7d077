#include "coordinator/tagged_text.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>

#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

// What Python's str.isspace knows.
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

// Start of the character before `at` > 0.
size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

std::vector<TaggedText> split_at_spaces(const TaggedText& text, long long splits_max) {
  std::vector<TaggedText> parts;
  const std::string& s = text.str();
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < s.size()) {
      const CodePoint c = code_point_at(s, at);
      if (is_space(c.value) != spaces) break;
      at += c.bytes;
    }
  };
  for (skip(true); at < s.size(); skip(true)) {
    const size_t begin = at;
    if (splits_max >= 0 && static_cast<long long>(parts.size()) == splits_max) {
      parts.push_back(strip(text.slice(begin, s.size()), nullptr, false, true));
      break;
    }
    skip(false);
    parts.push_back(text.slice(begin, at));
  }
  return parts;
}

}  // namespace

TaggedText::TaggedText(std::string text, bool from_template) : text_(std::move(text)) {
  if (!text_.empty()) runs_.push_back({text_.size(), from_template});
}

void TaggedText::append(std::string_view text, bool from_template) {
  if (text.empty()) return;
  text_ += text;
  if (!runs_.empty() && runs_.back().from_template == from_template) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size(), from_template});
  }
}

void TaggedText::append(const TaggedText& other) { append(other, 0, other.size()); }

void TaggedText::append(const TaggedText& other, size_t begin, size_t end) {
  auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
  for (size_t at = begin; at < end; ++run) {
    const size_t stop = std::min(end, run->end);
    append(std::string_view(other.text_).substr(at, stop - at), run->from_template);
    at = stop;
  }
}

TaggedText TaggedText::slice(size_t begin, size_t end) const {
  TaggedText out;
  out.append(*this, begin, end);
  return out;
}

bool TaggedText::from_template(size_t at) const {
  return std::ranges::upper_bound(runs_, at, {}, &Run::end)->from_template;
}

TaggedText strip(const TaggedText& text, const std::string* characters, bool left, bool right) {
  const std::string& s = text.str();
  const auto drops = [&](size_t at) {
    const CodePoint c = code_point_at(s, at);
    if (!characters) return is_space(c.value);
    return characters->find(s.substr(at, c.bytes)) != std::string::npos;
  };
  size_t begin = 0;
  size_t end = s.size();
  while (left && begin < end && drops(begin)) begin += code_point_at(s, begin).bytes;
  while (right && begin < end) {
    const size_t last = character_before(s, end);
    if (!drops(last)) break;
    end = last;
  }
  return text.slice(begin, end);
}

std::vector<TaggedText> split(const TaggedText& text, const std::string* separator,
                              long long splits_max) {
  if (!separator) return split_at_spaces(text, splits_max);
  std::vector<TaggedText> parts;
  size_t begin = 0;
  while (splits_max < 0 || static_cast<long long>(parts.size()) < splits_max) {
    const size_t at = find_text(text.str(), *separator, begin);
    if (at == std::string::npos) break;
    parts.push_back(text.slice(begin, at));
    begin = at + separator->size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

TaggedText replace(const TaggedText& text, const std::string& from, const TaggedText& to) {
  TaggedText out;
  const std::string& s = text.str();
  size_t begin = 0;
  if (from.empty()) {
    while (begin < s.size()) {
      const size_t end = begin + code_point_at(s, begin).bytes;
      out.append(to);
      out.append(text, begin, end);
      begin = end;
    }
    out.append(to);
    return out;
  }
  for (size_t at = find_text(s, from, 0); at != std::string::npos; at = find_text(s, from, begin)) {
    out.append(text, begin, at);
    out.append(to);
    begin = at + from.size();
  }
  out.append(text, begin, s.size());
  return out;
}

size_t replaced_bytes(const TaggedText& text, const std::string& from, size_t to_bytes) {
  const std::string& s = text.str();
  if (from.empty()) return s.size() + (count_code_points(s) + 1) * to_bytes;
  size_t places = 0;
  for (size_t at = find_text(s, from, 0); at != std::string::npos;
       at = find_text(s, from, at + from.size())) {
    ++places;
  }
  return s.size() - places * from.size() + places * to_bytes;
}

TaggedText with_case(const TaggedText& text, LetterCase wanted) {
  TaggedText out;
  const std::string& s = text.str();
  size_t at = 0;
  for (const auto& run : text.runs()) {
    std::string mapped;
    while (at < run.end) {
      const CodePoint c = code_point_at(s, at);
      const auto value = static_cast<utf8proc_int32_t>(c.value);
      const bool upper =
          wanted == LetterCase::kUpper || (wanted == LetterCase::kCapital && at == 0);
      append_code_point(
          mapped, static_cast<uint32_t>(upper ? utf8proc_toupper(value) : utf8proc_tolower(value)));
      at += c.bytes;
    }
    out.append(mapped, run.from_template);
  }
  return out;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* place = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (!place) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(place) - text.data());
}

}  // namespace headrace::coordinator
