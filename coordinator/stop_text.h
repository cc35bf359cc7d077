#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::coordinator {

// Looks for the end of an answer: the first of some texts in a text that comes in pieces. First is
// the one that is complete first; of those complete at the same byte, the longest. So what comes
// out does not depend on where the text was cut. Held back is only what may still become one.
// A value; its state is at most one stop text long.
class StopText {
 public:
  StopText() = default;  // looks for nothing
  // None of `stops` may be empty. `include`: the stop text itself still belongs to the answer.
  StopText(std::vector<std::string> stops, bool include);

  // Takes more text; appends to `out` what is certain. Once stopped(): takes nothing more.
  void push(std::string_view piece, std::string& out);
  // No more text comes: appends what was held back.
  void finish(std::string& out);
  bool stopped() const { return stopped_; }

 private:
  struct Needle {
    std::string text;
    std::vector<uint16_t> fallback;  // Knuth, Morris, Pratt: length of the longest border
    size_t matched = 0;
  };
  std::vector<Needle> needles_;
  bool include_ = false;
  bool stopped_ = false;
  std::string held_;  // the longest end of the text that begins a stop text
};

}  // namespace headrace::coordinator
