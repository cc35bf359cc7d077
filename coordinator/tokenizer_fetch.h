#pragma once

#include <span>
#include <string>

#include "coordinator/limits.h"
#include "protocol/messages.h"

namespace headrace::coordinator {

// XXH3-128 of some bytes.
Digest digest_of(std::span<const std::byte> bytes);

// Fetches one encoded TokenizerData from a worker, piece by piece, in order. Plain data: the
// Dispatcher sends what `request` gives and hands in what comes back.
class TokenizerFetch {
 public:
  enum class Progress : uint8_t {
    kIgnored,  // not a piece that was asked for: late, repeated, of another digest
    kMore,     // taken; ask for the next one
    kDone,     // whole and its digest is right: take()
    kBroken,   // contradicts itself, too large, wrong digest: see error(); ask another worker
  };

  TokenizerFetch(const Digest& digest, WorkerId worker, Instant now)
      : digest_(digest), worker_(worker), asked_(now) {}

  to_worker::FetchTokenizer request() const { return {digest_, bytes_.size()}; }
  Progress take_piece(WorkerId from, const to_coordinator::TokenizerPiece& piece, Instant now);
  bool overdue(Instant now) const { return now - asked_ > kTokenizerPieceWithin; }

  WorkerId worker() const { return worker_; }
  const Digest& digest() const { return digest_; }
  const Bytes& bytes() const { return bytes_; }
  const Status& error() const { return error_; }

 private:
  Progress broken(std::string why);

  Digest digest_;
  WorkerId worker_;
  Instant asked_;
  Bytes bytes_;
  Status error_;
};

}  // namespace headrace::coordinator
