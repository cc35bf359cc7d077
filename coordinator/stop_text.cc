#include "coordinator/stop_text.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"

namespace headrace::coordinator {
namespace {

std::vector<uint16_t> borders(const std::string& text) {
  std::vector<uint16_t> out(text.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = out[length - 1];
    if (text[i] == text[length]) ++length;
    out[i] = static_cast<uint16_t>(length);
  }
  return out;
}

}  // namespace

StopText::StopText(std::vector<std::string> stops, bool include) : include_(include) {
  for (std::string& text : stops) {
    CHECK(!text.empty() && text.size() <= UINT16_MAX);
    Needle needle;
    needle.fallback = borders(text);
    needle.text = std::move(text);
    needles_.push_back(std::move(needle));
  }
}

void StopText::push(std::string_view piece, std::string& out) {
  if (stopped_) return;
  if (needles_.empty()) {
    out += piece;
    return;
  }
  for (const char c : piece) {
    held_ += c;
    size_t hold = 0, found = 0;
    for (Needle& n : needles_) {
      while (n.matched > 0 && n.text[n.matched] != c) n.matched = n.fallback[n.matched - 1];
      if (n.text[n.matched] == c) ++n.matched;
      hold = std::max(hold, n.matched);
      if (n.matched == n.text.size()) found = std::max(found, n.matched);
    }
    if (found > 0) {
      stopped_ = true;
      held_.resize(held_.size() - (include_ ? 0 : found));
      out += std::exchange(held_, {});
      return;
    }
    const size_t certain = held_.size() - hold;
    out.append(held_, 0, certain);
    held_.erase(0, certain);
  }
}

void StopText::finish(std::string& out) {
  out += std::exchange(held_, {});
  for (Needle& n : needles_) n.matched = 0;
}

}  // namespace headrace::coordinator
