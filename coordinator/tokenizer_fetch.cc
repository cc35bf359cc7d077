#include "coordinator/tokenizer_fetch.h"

#include <xxhash.h>

namespace headrace::coordinator {

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

TokenizerFetch::Progress TokenizerFetch::broken(std::string why) {
  error_ = headrace::error(Errc::kInvalid, std::move(why));
  return Progress::kBroken;
}

TokenizerFetch::Progress TokenizerFetch::take_piece(WorkerId from,
                                                    const to_coordinator::TokenizerPiece& piece,
                                                    Instant now) {
  if (from != worker_ || piece.digest != digest_ || piece.offset != bytes_.size())
    return Progress::kIgnored;
  if (piece.total > kTokenizerBytesMax)
    return broken("tokenizer of " + std::to_string(piece.total) +
                  " bytes is larger than the limit of " + std::to_string(kTokenizerBytesMax));
  if (piece.bytes.empty() || piece.bytes.size() > kTokenizerPieceMax ||
      piece.bytes.size() > piece.total - bytes_.size())
    return broken("a piece of the tokenizer is empty or longer than what is left of it");
  bytes_.insert(bytes_.end(), piece.bytes.begin(), piece.bytes.end());
  asked_ = now;
  if (bytes_.size() < piece.total) return Progress::kMore;
  if (digest_of(bytes_) != digest_) return broken("tokenizer does not have the digest announced");
  return Progress::kDone;
}

}  // namespace headrace::coordinator
