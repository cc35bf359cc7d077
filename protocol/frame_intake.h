#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "protocol/link.h"

namespace headrace {

// Cuts what comes over a connection into frames: u32 little-endian length, then bytes. Knows no
// socket. Memory for a frame is taken as its bytes come, for the first one at most twice what came.
class FrameIntake {
 public:
  enum class Took : uint8_t {
    kAll,      // of what was given; more is to come
    kFrame,    // frame() is whole; the rest of what was given was not looked at
    kWait,     // the owner of its place has none yet (Landing::Way::kWait): ask() later
    kTooLong,  // announced() is above the limit
  };

  explicit FrameIntake(const LinkLimits& limits) : limits_(limits) {}
  void land(size_t head, Land land);

  // Takes bytes from the front of `bytes`.
  Took take(std::span<const std::byte>& bytes);
  // Asks again; kAll once there is a place.
  Took ask();
  // Where the next bytes belong, if that is known, and that so many were put there.
  std::span<std::byte> place();
  Took placed(size_t bytes);
  // That place is not ours: it belongs to whoever named it (Link::land).
  bool landing() const { return at_ != nullptr; }
  // It may be gone: bytes are not taken any more.
  void forget_landing() { at_ = nullptr; }
  void forget();  // also whom to ask

  Bytes frame();  // landed: its head alone
  bool first() const { return first_; }
  bool inside() const { return header_have_ > 0; }
  bool waits() const { return waits_; }
  size_t announced() const { return announced_; }
  size_t limit() const;

  static constexpr size_t kHeader = 4;
  static constexpr size_t kFirstBytes = 4u << 10;  // for a stranger before anything has come

 private:
  Took take_header(std::span<const std::byte>& bytes);
  Took filled();

  const LinkLimits limits_;
  size_t head_ = 0;
  Land land_;
  std::array<std::byte, kHeader> header_{};
  size_t header_have_ = 0;
  size_t announced_ = 0;  // bytes of the frame
  bool first_ = true;     // no frame was whole yet
  bool asked_ = true;     // where this frame goes
  bool waits_ = false;
  Bytes body_;  // as far as memory was taken for it
  size_t have_ = 0;
  std::byte* at_ = nullptr;
  size_t rest_ = 0;  // that are to come there
};

}  // namespace headrace
