#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace headrace {

// What all peers together make us hold and do. Lives on one loop, like all tabs in it.
struct PeersTotal {
  // Those who ask much share this: a question each so often, so many at once after a calm time.
  static constexpr std::chrono::nanoseconds kQuestionEvery{500'000};
  static constexpr int64_t kQuestionsAtOnce = 64;

  // How long one who asks much waits after a question, at the time `now`.
  std::chrono::nanoseconds wait_for_turn(std::chrono::nanoseconds now) {
    turns_to = std::max(turns_to, now) + kQuestionEvery;
    return std::max(turns_to - now - kQuestionsAtOnce * kQuestionEvery,
                    std::chrono::nanoseconds(0));
  }
  std::chrono::nanoseconds turns_to{0};
  uint64_t limit = UINT64_MAX;
  std::function<void()> over = nullptr;  // called at each charge beyond the limit; must only post
  uint64_t bytes = 0;
};

// What one peer makes us hold: half of a message, questions, answers that it has not finished, what
// it has not read. Charges are estimates that are not below the truth by much; who charges credits
// the same, and what is left when the tab ends is taken off the total.
class PeerTab {
 public:
  PeerTab(std::shared_ptr<PeersTotal> total, uint64_t base) : total_(std::move(total)) {
    charge(base);
  }
  ~PeerTab() { close(); }
  PeerTab(const PeerTab&) = delete;

  // The peer is closed: what it holds will be free as soon as the loop turns, and counts no more.
  void close() {
    credit(bytes_);
    closed_ = true;
  }
  PeersTotal& total() { return *total_; }
  // Whether the peer has shown that it takes what it asks for (coordinator/standing.h).
  bool known() const { return known_; }
  void know(bool known) { known_ = known; }
  uint64_t bytes() const { return bytes_; }
  void charge(uint64_t n) {
    if (closed_) return;
    bytes_ += n;
    total_->bytes += n;
    if (total_->bytes > total_->limit && total_->over) total_->over();
  }
  void credit(uint64_t n) {
    n = std::min(n, bytes_);
    bytes_ -= n;
    total_->bytes -= n;
  }

  // An answer was made and waits to be written; it was written; the peer has finished it.
  void made(uint64_t n) {
    queued_ += n;
    charge(n);
  }
  void wrote(uint64_t n, bool kept) {
    if (kept) charge(n);
    if (kept) answers_ += n;
    drop_queued(std::min(n, queued_));
  }
  void finished(uint64_t n) {
    credit(n);
    answers_ -= std::min(n, answers_);
    if (eased) eased();
  }
  // No question is open: whatever was made and not written was dropped with its call.
  void nothing_queued() { drop_queued(queued_); }
  uint64_t answers() const { return queued_ + answers_; }

  std::function<void()> eased = nullptr;  // called when answers() has become less

 private:
  void drop_queued(uint64_t n) {
    queued_ -= n;
    credit(n);
    if (n > 0 && eased) eased();
  }
  std::shared_ptr<PeersTotal> total_;
  bool closed_ = false;
  bool known_ = false;
  uint64_t bytes_ = 0;
  uint64_t queued_ = 0;
  uint64_t answers_ = 0;
};

}  // namespace headrace
