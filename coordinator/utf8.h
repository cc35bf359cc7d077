#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::coordinator {

// Well-formed UTF-8 one byte at a time (Unicode standard, table 3-7: no overlong forms, no
// surrogates, nothing past U+10FFFF). A value.
class Utf8Scanner {
 public:
  enum class Step : uint8_t {
    kMore,    // taken; the character goes on
    kWhole,   // taken; the character is complete
    kBroken,  // the character begun before ends here unfinished; `byte` was not taken
    kNever,   // `byte` can begin no character; it was taken and dropped
  };
  Step take(uint8_t byte);
  bool inside() const { return missing_ > 0; }

 private:
  uint8_t missing_ = 0;  // bytes until the character is complete
  uint8_t low_ = 0x80;   // range of the next byte
  uint8_t high_ = 0xBF;
};

// Offset of the first byte that does not belong to a whole character; npos if all do.
size_t first_invalid_utf8(std::string_view text);

struct CodePoint {
  uint32_t value = 0;
  uint32_t bytes = 1;
};
// The character that begins at `at` < text.size(). `text` is valid UTF-8 and `at` a boundary;
// anything else gives some value and stays inside `text`.
CodePoint code_point_at(std::string_view text, size_t at);

// Characters of valid text; bytes of its first `count` characters (all of it if it has fewer).
size_t count_code_points(std::string_view text);
size_t bytes_of_code_points(std::string_view text, size_t count);

void append_code_point(std::string& out, uint32_t value);

// Bytes in, valid UTF-8 out: each maximal part of a broken character becomes one U+FFFD (Unicode
// standard, section 3.9, "substitution of maximal subparts"). What comes out for a text does not
// depend on where it was cut into pieces. A value; holds at most three bytes back.
class Utf8Repair {
 public:
  void feed(std::string_view bytes, std::string& out);
  void finish(std::string& out);  // no more bytes: an unfinished character becomes U+FFFD

 private:
  Utf8Scanner scanner_;
  std::string held_;
};

}  // namespace headrace::coordinator
