#include "coordinator/token_log.h"

#include <algorithm>

#include "protocol/check.h"
#include "protocol/planted.h"

namespace headrace::coordinator {

TokenLog::Verdict TokenLog::append(uint32_t position, std::span<const Token> ids) {
  if (planted(Mistake::kGapTaken)) position = std::min(position, size());
  if (planted(Mistake::kRepeatTaken)) position = std::max(position, size());
  if (position > size()) return Verdict::kGap;
  const size_t known = std::min<size_t>(size() - position, ids.size());
  if (!std::equal(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(known),
                  tokens_.begin() + position))
    return Verdict::kConflict;
  if (known == ids.size()) return Verdict::kRepeat;
  tokens_.insert(tokens_.end(), ids.begin() + static_cast<std::ptrdiff_t>(known), ids.end());
  return Verdict::kAppended;
}

std::span<const Token> TokenLog::sendable() const {
  const uint32_t until = std::min(size(), acknowledged_ + kUnacknowledgedMax);
  if (until <= sent_) return {};
  return std::span(tokens_).subspan(sent_, until - sent_);
}

void TokenLog::mark_sent(size_t count) {
  CHECK(count <= size() - sent_);
  sent_ += static_cast<uint32_t>(count);
}

bool TokenLog::acknowledge(uint32_t position) {
  if (position > sent_ || position < acknowledged_) return false;
  if (!planted(Mistake::kCreditLost)) acknowledged_ = position;
  return true;
}

void TokenLog::truncate(uint32_t size) {
  CHECK(size <= this->size() && size >= sent_);
  tokens_.resize(size);
}

void TokenLog::rewind(uint32_t position) {
  CHECK(position <= size());
  sent_ = acknowledged_ = position;
}

}  // namespace headrace::coordinator
