#include "coordinator/text_stream.h"

namespace headrace::coordinator {

Result<std::string> TextStream::push(std::span<const Token> ids) {
  auto bytes = tokenizer_->decode(ids);
  if (!bytes) return bytes.error();
  std::string out;
  repair_.feed(*bytes, out);
  return out;
}

std::string TextStream::finish() {
  std::string out;
  repair_.finish(out);
  return out;
}

}  // namespace headrace::coordinator
