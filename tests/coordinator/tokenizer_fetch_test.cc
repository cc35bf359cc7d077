#include "coordinator/tokenizer_fetch.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
namespace {
using P = TokenizerFetch::Progress;

Bytes sample() {
  Bytes bytes(100);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  return bytes;
}
to_coordinator::TokenizerPiece piece(size_t at, size_t length) {
  const Bytes all = sample();
  return {digest_of(all), at, all.size(),
          Bytes(all.begin() + static_cast<long>(at), all.begin() + static_cast<long>(at + length))};
}
}  // namespace

TEST_CASE("the digest is XXH3-128, high half first") {
  // The reference implementation's value for no input at all.
  CHECK(digest_of({}) == Digest{0x99aa06d3014798d8ull, 0x6001c324468d497full});
}

TEST_CASE("pieces in order make the whole; others are ignored") {
  TokenizerFetch f(digest_of(sample()), WorkerId{1}, Instant{});
  CHECK(f.request().offset == 0);
  CHECK(f.take_piece(WorkerId{2}, piece(0, 50), Instant{}) == P::kIgnored);
  CHECK(f.take_piece(WorkerId{1}, piece(50, 50), Instant{}) == P::kIgnored);
  auto other = piece(0, 50);
  other.digest = {1, 1};
  CHECK(f.take_piece(WorkerId{1}, other, Instant{}) == P::kIgnored);
  CHECK(f.take_piece(WorkerId{1}, piece(0, 50), Instant{1s}) == P::kMore);
  CHECK(f.take_piece(WorkerId{1}, piece(0, 50), Instant{1s}) == P::kIgnored);
  CHECK(f.request().offset == 50);
  CHECK_FALSE(f.overdue(Instant{1s} + kTokenizerPieceWithin));
  CHECK(f.overdue(Instant{2s} + kTokenizerPieceWithin));
  CHECK(f.take_piece(WorkerId{1}, piece(50, 50), Instant{}) == P::kDone);
  CHECK(f.bytes() == sample());
}

TEST_CASE("pieces that contradict themselves break the fetch") {
  const auto start = [] { return TokenizerFetch(digest_of(sample()), WorkerId{1}, Instant{}); };
  auto f = start();
  CHECK(f.take_piece(WorkerId{1}, piece(0, 0), Instant{}) == P::kBroken);
  auto wrong = piece(0, 100);
  wrong.bytes[3] = std::byte{99};
  f = start();
  CHECK(f.take_piece(WorkerId{1}, wrong, Instant{}) == P::kBroken);
  CHECK(f.error().message.find("digest") != std::string::npos);
  auto longer = piece(0, 100);
  longer.total = 99;
  f = start();
  CHECK(f.take_piece(WorkerId{1}, longer, Instant{}) == P::kBroken);
  auto huge = piece(0, 10);
  huge.total = UINT64_MAX;
  f = start();
  CHECK(f.take_piece(WorkerId{1}, huge, Instant{}) == P::kBroken);
  CHECK(f.error().message.find("67108864") != std::string::npos);
  // The announced size shrinks in the middle.
  f = start();
  CHECK(f.take_piece(WorkerId{1}, piece(0, 50), Instant{}) == P::kMore);
  auto shrunk = piece(50, 10);
  shrunk.total = 40;
  CHECK(f.take_piece(WorkerId{1}, shrunk, Instant{}) == P::kBroken);
}

}  // namespace headrace::coordinator
