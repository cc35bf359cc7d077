#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::coordinator {

// Text of which each byte knows whether the template or the user wrote it. A value.
class TaggedText {
 public:
  TaggedText() = default;
  TaggedText(std::string text, bool from_template);

  const std::string& str() const { return text_; }
  size_t size() const { return text_.size(); }

  // A stretch [end of the one before, end) of one origin; neighbours differ, the last ends at
  // size().
  struct Run {
    size_t end = 0;
    bool from_template = false;
  };
  const std::vector<Run>& runs() const { return runs_; }

  void append(std::string_view text, bool from_template);
  void append(const TaggedText& other);
  // Appends other[begin, end), byte offsets inside `other`.
  void append(const TaggedText& other, size_t begin, size_t end);
  TaggedText slice(size_t begin, size_t end) const;
  // Origin of the byte at `at` < size().
  bool from_template(size_t at) const;

 private:
  std::string text_;
  std::vector<Run> runs_;
};

// The operations of Python's str that templates use, on valid UTF-8; results keep the origins.

// Which ends to strip, and of what: any of `characters`; none given = white space.
TaggedText strip(const TaggedText& text, const std::string* characters, bool left, bool right);
// As str.split: with a separator (not empty) between all its places, without one between runs of
// white space. At most `splits_max` cuts; < 0: all.
std::vector<TaggedText> split(const TaggedText& text, const std::string* separator,
                              long long splits_max);
// Every `from` (an empty one matches between all characters) becomes `to`.
TaggedText replace(const TaggedText& text, const std::string& from, const TaggedText& to);
// Bytes that `replace` would give, without making them.
size_t replaced_bytes(const TaggedText& text, const std::string& from, size_t to_bytes);

enum class LetterCase {
  kUpper,
  kLower,
  kCapital
};  // kCapital: the first letter upper, others lower
// One character for one: no special forms such as the double S of a sharp s.
TaggedText with_case(const TaggedText& text, LetterCase wanted);

// Offset of `needle` from `from` on, npos if none; linear whatever the two hold.
size_t find_text(std::string_view text, std::string_view needle, size_t from);

}  // namespace headrace::coordinator
