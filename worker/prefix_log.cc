#include "worker/prefix_log.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {

void PrefixLog::restart(std::vector<PrefixEvent> all) {
  first_ = seen_ = 0;
  log_.assign(all.begin(), all.end());
}

void PrefixLog::add(PrefixEvent event) {
  log_.push_back(event);
  while (log_.size() > most_) {
    log_.pop_front();
    ++first_;
  }
}

void PrefixLog::reset(std::vector<PrefixEvent> all) {
  first_ = end();
  seen_ = first_;
  log_.assign(all.begin(), all.end());
  log_.push_front({PrefixEvent::Kind::kReset, 0});
}

void PrefixLog::seen(uint64_t number) {
  if (number <= seen_ || number > end()) return;
  seen_ = number;
  while (first_ < seen_ && !log_.empty()) {
    log_.pop_front();
    ++first_;
  }
}

PrefixLog::Part PrefixLog::unseen(size_t n) const {
  CHECK(!lost());
  const auto from = log_.begin() + static_cast<ptrdiff_t>(seen_ - first_);
  const size_t count = std::min<size_t>(n, static_cast<size_t>(log_.end() - from));
  return {seen_, {from, from + static_cast<ptrdiff_t>(count)}};
}

}  // namespace headrace::worker
