#include "protocol/frame_intake.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/check.h"

namespace headrace {

void FrameIntake::land(size_t head, Land land) {
  CHECK(head > 0 && !waits_);
  head_ = head;
  land_ = std::move(land);
}

size_t FrameIntake::limit() const {
  return first_ ? std::min(limits_.first_frame_bytes_max, limits_.frame_bytes_max)
                : limits_.frame_bytes_max;
}

FrameIntake::Took FrameIntake::take(std::span<const std::byte>& bytes) {
  while (!bytes.empty()) {
    if (waits_) return Took::kWait;
    if (header_have_ < kHeader) {
      if (const Took took = take_header(bytes); took != Took::kAll) return took;
      continue;
    }
    const auto to = place();
    const size_t n = std::min(bytes.size(), to.size());
    std::memcpy(to.data(), bytes.data(), n);
    bytes = bytes.subspan(n);
    if (const Took took = placed(n); took != Took::kAll) return took;
  }
  return Took::kAll;
}

FrameIntake::Took FrameIntake::take_header(std::span<const std::byte>& bytes) {
  const size_t n = std::min(bytes.size(), kHeader - header_have_);
  std::memcpy(header_.data() + header_have_, bytes.data(), n);
  header_have_ += n;
  bytes = bytes.subspan(n);
  if (header_have_ < kHeader) return Took::kAll;
  announced_ = 0;
  for (size_t i = 0; i < kHeader; ++i) announced_ |= static_cast<size_t>(header_[i]) << (8 * i);
  if (announced_ > limit()) return Took::kTooLong;
  asked_ = !land_ || announced_ <= head_;
  body_ = Bytes(!asked_ ? head_ : first_ ? std::min(announced_, kFirstBytes) : announced_);
  have_ = 0;
  return announced_ > 0 ? Took::kAll : Took::kFrame;
}

std::span<std::byte> FrameIntake::place() {
  if (at_ != nullptr) return {at_, rest_};
  return std::span(body_).subspan(have_);
}

FrameIntake::Took FrameIntake::placed(size_t bytes) {
  if (at_ != nullptr) {
    at_ += bytes;
    rest_ -= bytes;
    return rest_ > 0 ? Took::kAll : Took::kFrame;
  }
  have_ += bytes;
  return have_ < body_.size() ? Took::kAll : filled();
}

// All memory that there is for the frame.
FrameIntake::Took FrameIntake::filled() {
  if (have_ == announced_) return Took::kFrame;
  if (!asked_) return ask();
  body_.resize(std::min(announced_, 2 * body_.size()));
  return Took::kAll;
}

FrameIntake::Took FrameIntake::ask() {
  const Landing landing = land_(body_, announced_ - head_);
  waits_ = landing.way == Landing::Way::kWait;
  if (waits_) return Took::kWait;
  asked_ = true;
  if (landing.way == Landing::Way::kAt) {
    at_ = landing.at;
    rest_ = announced_ - head_;
  } else {
    body_.resize(announced_);
  }
  return Took::kAll;
}

Bytes FrameIntake::frame() {
  first_ = false;
  header_have_ = 0;
  have_ = 0;
  at_ = nullptr;
  return std::exchange(body_, {});
}

void FrameIntake::forget() {
  forget_landing();
  land_ = nullptr;
}

}  // namespace headrace
