#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "protocol/ids.h"

namespace headrace::coordinator {

// The names of control tokens, found in text. At each place the longest name wins (as an
// Aho-Corasick leftmost-longest search does). A prefix tree; a value.
class ControlNames {
 public:
  // Longest name that is kept, in bytes; it bounds the work at each place of a text.
  static constexpr size_t kNameBytesMax = 256;

  // False, and nothing added, if the name is empty or longer than kNameBytesMax.
  bool add(std::string_view name, Token id);

  struct Match {
    size_t bytes = 0;  // 0: no name begins here
    Token id = -1;
  };
  Match match(std::string_view text, size_t at) const;

 private:
  static constexpr uint64_t edge(uint32_t node, uint8_t byte) { return uint64_t{node} << 8 | byte; }

  std::unordered_map<uint64_t, uint32_t> edges_;  // (node, byte) -> node
  std::vector<Token> ids_ = {-1};                 // by node: the name that ends there, or -1
  bool begins_[256] = {};                         // some name begins with this byte
};

}  // namespace headrace::coordinator
