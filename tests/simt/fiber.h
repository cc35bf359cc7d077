#pragma once

#include <cstddef>

namespace headrace::simt {

// A stack that runs a function a piece at a time: resume() goes on with it until it calls pause().
// Not copied or moved once started. A fiber may be left for good while paused: nothing is unwound.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t{256} << 10;  // a guard page follows below

  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() calls body(argument), which must end in a pause() that is not resumed.
  // `index` moves the hot end of the stack, so that neighbours do not share cache sets.
  void start(void (*body)(void*), void* argument, size_t index);
  void resume();
  void pause();

  void* sanitizer_fiber() const { return sanitizer_fiber_; }

 private:
  struct Entry;

  char* stack_ = nullptr;  // lowest usable byte
  void* context_ = nullptr;
  void* resumer_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_bytes_ = 0;
  void* sanitizer_fiber_ = nullptr;
  void* resumer_fiber_ = nullptr;
};

}  // namespace headrace::simt
