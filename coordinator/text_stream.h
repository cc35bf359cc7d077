#pragma once

#include <span>
#include <string>

#include "coordinator/tokenizer.h"
#include "coordinator/utf8.h"

namespace headrace::coordinator {

// Turns the ids of one answer into text as they come. Every piece is valid UTF-8; the pieces joined
// are the repaired text of all ids (Utf8Repair), however the ids were cut into pushes. A character
// made of several tokens waits until it is whole; only what can never become one gives U+FFFD.
// Control tokens give no text.
//
// It holds no state but what the ids made: to go on from a token log, push the logged ids into a
// new stream and drop the text. Whoever looks for stop strings does so on the text that comes out
// of push and finish; nothing upstream of this class knows text.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // The text that these ids made certain; may be empty. An id out of range: kInvalid, and none of
  // the ids is taken.
  Result<std::string> push(std::span<const Token> ids);
  // The answer is over: what was held back.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  Utf8Repair repair_;
};

}  // namespace headrace::coordinator
