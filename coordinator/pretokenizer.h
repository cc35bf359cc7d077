#pragma once

#include <string_view>

#include "protocol/result.h"

namespace headrace::coordinator {

// How text is cut into words before the merges; no merge crosses a cut.
enum class PreTokenizer {
  // GPT-2 (Radford et al. 2019): contractions in lower case ('s 't 're 've 'm 'll 'd); else runs of
  // letters, of numbers, or of anything else that is not white space, each with the one U+0020
  // before it; else white space, which leaves its last character to the word that follows.
  kGpt2,
  // SmolLM: each number character (category N) is a piece of its own; GPT-2's rule inside the
  // pieces between them, each seen alone.
  kSmolLm,
};

// "gpt-2" or "smollm"; any other is refused by name (kInvalid).
Result<PreTokenizer> pretokenizer_named(std::string_view name);

// Yields the words of a valid UTF-8 text in order; joined they are the text. Time is linear in the
// text. The text must outlive the splitter and the words.
class WordSplitter {
 public:
  WordSplitter(PreTokenizer rule, std::string_view text) : rule_(rule), text_(text) {}
  // False at the end; a word is never empty.
  bool next(std::string_view& word);

 private:
  PreTokenizer rule_;
  std::string_view text_;
  size_t at_ = 0;
  size_t piece_end_ = 0;  // GPT-2's rule sees nothing past it
};

}  // namespace headrace::coordinator
