#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/result.h"

namespace headrace::coordinator {

// A word of a template.
struct TemplateToken {
  enum class Kind : uint8_t {
    kText,        // outside of tags; white-space control already done
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // escapes already resolved
    kInteger,
    kFloat,
    kOperator,  // one of + - * / // % ~ == != < > <= >= = ( ) [ ] { } , . : |
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  uint32_t line = 1;
  bool operator==(const TemplateToken&) const = default;
};

// Cuts a template into words as Jinja does with trim_blocks and lstrip_blocks on: a tag or comment
// swallows the newline right after it and the blanks between it and the start of its line; a minus
// inside a tag swallows all white space on its side; a plus turns either off; the last newline of
// the source is dropped. The list ends with kEnd. `source` is valid UTF-8. Errors name the line.
Result<std::vector<TemplateToken>> lex_template(std::string_view source);

}  // namespace headrace::coordinator
