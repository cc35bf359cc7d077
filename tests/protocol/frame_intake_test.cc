#include "protocol/frame_intake.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

using Took = FrameIntake::Took;

Bytes framed(const Bytes& body) {
  Bytes out(4);
  for (size_t i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(body.size() >> (8 * i));
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

Bytes counting(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + size);
  return bytes;
}

// All of it, in pieces of `step` bytes.
std::vector<Bytes> cut(FrameIntake& intake, const Bytes& all, size_t step) {
  std::vector<Bytes> frames;
  for (size_t at = 0; at < all.size(); at += step) {
    auto piece = std::span<const std::byte>(all).subspan(at, std::min(step, all.size() - at));
    while (!piece.empty()) {
      const Took took = intake.take(piece);
      REQUIRE((took == Took::kAll || took == Took::kFrame));
      if (took == Took::kFrame) frames.push_back(intake.frame());
    }
  }
  return frames;
}

TEST_CASE("frames come out as they went in, however they are cut") {
  Bytes all;
  for (const size_t n : {0, 1, 5, 300, 9000, 2}) {
    const Bytes f = framed(counting(n));
    all.insert(all.end(), f.begin(), f.end());
  }
  for (const size_t step : {size_t{1}, size_t{3}, size_t{4096}, all.size()}) {
    FrameIntake intake{LinkLimits{}};
    const auto frames = cut(intake, all, step);
    REQUIRE(frames.size() == 6);
    CHECK(frames[4] == counting(9000));
    CHECK(frames[5] == counting(2));
    CHECK(!intake.inside());
  }
}

TEST_CASE("limits: of the first frame, of the others") {
  FrameIntake intake({.frame_bytes_max = 100, .first_frame_bytes_max = 10});
  const auto take = [&](const Bytes& bytes) {
    std::span<const std::byte> rest(bytes);
    return intake.take(rest);
  };
  FrameIntake long_first = intake;
  CHECK(take(framed(counting(10))) == Took::kFrame);
  intake.frame();
  CHECK(take(framed(counting(100))) == Took::kFrame);
  intake.frame();
  CHECK(take(framed(counting(101))) == Took::kTooLong);
  const Bytes eleven = framed(counting(11));
  std::span<const std::byte> rest(eleven);
  CHECK(long_first.take(rest) == Took::kTooLong);
  CHECK(long_first.announced() == 11);
}

TEST_CASE("what is longer than the head lands where it was told to, and nowhere else") {
  for (const size_t step : {1, 7, 1000}) {
    FrameIntake intake{LinkLimits{}};
    std::vector<std::byte> memory(300);
    intake.land(5, [&](std::span<const std::byte> head, size_t rest) {
      CHECK(head.size() == 5);
      CHECK(rest == 195);
      return Landing{Landing::Way::kAt, memory.data() + 50};
    });
    const Bytes sent = counting(200);
    Bytes all = framed(counting(5));
    for (const Bytes& f : {framed(sent), framed(counting(3))}) {
      all.insert(all.end(), f.begin(), f.end());
    }
    const auto frames = cut(intake, all, step);
    REQUIRE(frames.size() == 3);
    CHECK(frames[1] == Bytes(sent.begin(), sent.begin() + 5));
    CHECK(std::equal(sent.begin() + 5, sent.end(), memory.begin() + 50));
    CHECK(std::count(memory.begin(), memory.begin() + 50, std::byte{0}) == 50);
    CHECK(std::count(memory.begin() + 245, memory.end(), std::byte{0}) == 55);
  }
}

TEST_CASE("one that has no place waits; one that is to have none is whole") {
  FrameIntake intake{LinkLimits{}};
  Landing next{Landing::Way::kWait};
  intake.land(2, [&](auto, auto) { return next; });
  const Bytes all = framed(counting(9));
  std::span<const std::byte> rest(all);
  CHECK(intake.take(rest) == Took::kWait);
  CHECK(rest.size() == 7);
  CHECK(intake.waits());
  CHECK(intake.take(rest) == Took::kWait);
  CHECK(rest.size() == 7);
  next.way = Landing::Way::kFrame;
  CHECK(intake.ask() == Took::kAll);
  CHECK(intake.take(rest) == Took::kFrame);
  CHECK(intake.frame() == counting(9));
}

}  // namespace
}  // namespace headrace
