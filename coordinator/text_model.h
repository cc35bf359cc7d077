#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/client_port.h"
#include "coordinator/cluster_status.h"

namespace headrace::coordinator {

// Text of one answer, cut from its tokens: pieces are whole UTF-8 characters.
class TextCutter {
 public:
  virtual ~TextCutter() = default;
  virtual std::string push(std::span<const Token> ids) = 0;  // what became certain
  virtual std::string finish() = 0;                          // what was held back
};

// All that the Dispatcher needs of a model's tokenizer and chat template. Immutable.
class TextModel {
 public:
  virtual ~TextModel() = default;
  // Ids are checked and passed on, text is tokenized, messages go through the chat template.
  // Errors: kInvalid with one line for the client. May give no token at all.
  virtual Result<std::vector<Token>> encode(const Prompt& prompt, bool special) const = 0;
  // Control names come out as text; kInvalid names an id outside of the vocabulary, or the limit of
  // kDetokenizeBytesMax.
  virtual Result<std::string> decode(std::span<const Token> ids) const = 0;
  virtual std::unique_ptr<TextCutter> cutter() const = 0;
  virtual const std::vector<Token>& end_tokens() const = 0;
  virtual bool has_chat() const = 0;
};

// To the Dispatcher: only turn text into ids, or ids into text. kUnavailable while no worker has
// said which tokenizer it is.
struct AskTokenize {
  Prompt prompt;
  bool special = false;
  Ref<ReplyPort<Result<std::vector<Token>>>> reply;
};
struct AskDetokenize {
  std::vector<Token> ids;
  Ref<ReplyPort<Result<std::string>>> reply;
};

// From the encoded TokenizerData; an error is one line that says what in it is not supported.
using TextModelFactory =
    std::function<Result<std::shared_ptr<const TextModel>>(std::span<const std::byte>)>;

// The real one: decodes, checks, and builds tokenizer and template.
Result<std::shared_ptr<const TextModel>> make_text_model(std::span<const std::byte> encoded);

}  // namespace headrace::coordinator
