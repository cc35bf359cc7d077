#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

#include "tests/simt/sanitizers.h"

namespace headrace::simt {

// A stack that runs a function a piece at a time: resume() goes on with it until it, or a fiber
// that went on in its place, calls pause(). Not copied or moved once started. A fiber may be left
// for good while paused: nothing is unwound. All fibers of a process have one resumer at a time.
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
  void pause_for(Fiber& next);  // `next` goes on instead

  void* sanitizer_fiber() const { return sanitizer_fiber_; }

 private:
  struct Entry;
  struct Home {  // of the resumer
    void* context = nullptr;
    void* fake_stack = nullptr;
    const void* stack = nullptr;
    size_t bytes = 0;
    void* sanitizer_fiber = nullptr;
  };
  static Home home;
  static bool from_home;  // the last jump
  static Fiber* target;   // of the last jump to a fiber

  static void swap(void** from, void* to);
  void jump(void** from, void** fake);
  void arrive();

  char* stack_ = nullptr;  // lowest usable byte
  void* context_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;
  void* sanitizer_fiber_ = nullptr;
};

// In a header, so that few returns follow a jump: the processor foresees none of them.

// The one that goes on notes where the other one stopped.
inline void Fiber::swap(void** from, void* to) {
  const auto back = boost::context::detail::jump_fcontext(to, from);
  *static_cast<void**>(back.data) = back.fctx;
}

// To this fiber.
inline void Fiber::jump(void** from, void** fake) {
  target = this;
  if (sanitizers::present()) {
    sanitizers::before_jump(fake, stack_, kStackBytes);
    sanitizers::become(sanitizer_fiber_);
  }
  swap(from, context_);
}

inline void Fiber::arrive() {
  if (!sanitizers::present()) return;
  sanitizers::after_jump(fake_stack_, from_home ? &home.stack : nullptr,
                         from_home ? &home.bytes : nullptr);
}

inline void Fiber::pause_for(Fiber& next) {
  from_home = false;
  next.jump(&context_, &fake_stack_);
  arrive();
}

}  // namespace headrace::simt
