#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/limits.h"
#include "protocol/ids.h"

namespace headrace::coordinator {

// The truth about one answer: which tokens it has, in order, each once. A token is appended only
// at position == size; then it may go to the client, as far as the client's credit reaches.
// (reliability rules R7 and 5.5; at most 4 bytes a token are held back for a slow client.)
class TokenLog {
 public:
  enum class Verdict : uint8_t {
    kAppended,  // all or the last part of the run was new
    kRepeat,    // everything was here already, the same: dropped
    kGap,       // the run begins past the end: something is missing
    kConflict,  // another token at a position that is taken
  };
  // Takes a run of tokens, the first at `position`. On kGap and kConflict nothing changes.
  Verdict append(uint32_t position, std::span<const Token> ids);

  // The next tokens that may go to the client now: logged, unsent, within the credit.
  std::span<const Token> sendable() const;
  // The client is being sent the first `count` of those.
  void mark_sent(size_t count);
  // The client took everything up to `position` (exclusive). False: it never was sent that far, or
  // the position goes back; nothing changes.
  bool acknowledge(uint32_t position);
  // The answer ends behind `size` tokens, at least as many as were sent: the rest never was.
  void truncate(uint32_t size);
  // Another client goes on from `position` <= size: it took all before, and nothing behind.
  void rewind(uint32_t position);

  const std::vector<Token>& tokens() const { return tokens_; }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t sent() const { return sent_; }
  uint32_t acknowledged() const { return acknowledged_; }
  bool all_sent() const { return sent_ == size(); }

 private:
  std::vector<Token> tokens_;
  uint32_t sent_ = 0;          // positions below were given to the client
  uint32_t acknowledged_ = 0;  // positions below were taken by it
};

}  // namespace headrace::coordinator
