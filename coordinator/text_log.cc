#include "coordinator/text_log.h"

#include <utility>

#include "protocol/check.h"

namespace headrace::coordinator {

size_t TextLog::append(std::span<const Token> ids) {
  CHECK(cutter_ || ids.empty());
  size_t taken = 0;
  for (const Token& id : ids) {
    if (stop_.stopped()) break;
    stop_.push(cutter_->push({&id, 1}), text_);
    ends_.push_back(text_.size());
    ++taken;
  }
  return taken;
}

void TextLog::finish() {
  if (!cutter_) return;
  if (!stop_.stopped()) {
    stop_.push(cutter_->finish(), tail_);
    if (!stop_.stopped()) stop_.finish(tail_);
  }
  cutter_ = nullptr;
}

std::string_view TextLog::piece(uint32_t begin, uint32_t end) const {
  CHECK(begin <= end && end <= ends_.size());
  if (begin == end) return {};
  const size_t from = begin == 0 ? 0 : ends_[begin - 1];
  return std::string_view(text_).substr(from, ends_[end - 1] - from);
}

size_t TextLog::bytes() const {
  return text_.capacity() + tail_.capacity() + ends_.capacity() * sizeof(size_t);
}

}  // namespace headrace::coordinator
