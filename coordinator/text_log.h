#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/stop_text.h"
#include "coordinator/text_model.h"

namespace headrace::coordinator {

// The text of one answer by token position: cut when tokens are appended to the log, so that a
// chunk sent again after a reconnect is the same, byte for byte. Ends where a stop text is
// complete.
class TextLog {
 public:
  TextLog(std::unique_ptr<TextCutter> cutter, StopText stop)
      : cutter_(std::move(cutter)), stop_(std::move(stop)) {}

  // Takes tokens in order; returns how many belong to the answer: fewer than given when one of them
  // completed a stop text (it is the last that does).
  size_t append(std::span<const Token> ids);
  // The answer is over: what was held back is the tail. May find a stop text in it.
  void finish();
  bool stopped() const { return stop_.stopped(); }

  // Of the tokens [begin, end), all of them taken before.
  std::string_view piece(uint32_t begin, uint32_t end) const;
  const std::string& tail() const { return tail_; }
  uint32_t tokens() const { return static_cast<uint32_t>(ends_.size()); }
  size_t bytes() const;  // of memory

 private:
  std::unique_ptr<TextCutter> cutter_;
  StopText stop_;
  std::string text_;
  std::vector<size_t> ends_;  // by token: where its text ends
  std::string tail_;
};

}  // namespace headrace::coordinator
