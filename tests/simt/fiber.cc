#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace headrace::simt {

constexpr size_t kGuardBytes = 4096;
constexpr size_t kStaggerStep = 1088;  // 17 cache lines: an odd number, so all sets are reached
constexpr size_t kStaggerBytes = size_t{64} << 10;

Fiber::Home Fiber::home;
bool Fiber::from_home = false;
Fiber* Fiber::target = nullptr;

struct Fiber::Entry {
  static void run(boost::context::detail::transfer_t from) {
    *static_cast<void**>(from.data) = from.fctx;
    Fiber& fiber = *target;
    fiber.arrive();
    fiber.body_(fiber.argument_);
    std::abort();  // the last pause was resumed
  }
};

Fiber::~Fiber() {
  if (stack_) {
    sanitizers::unpoison(stack_, kStackBytes);
    munmap(stack_ - kGuardBytes, kStackBytes + kGuardBytes);
  }
  sanitizers::delete_fiber(sanitizer_fiber_);
}

void Fiber::start(void (*body)(void*), void* argument, size_t index) {
  if (!stack_) {
    void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
      std::perror("no memory for the stack of an emulated thread");
      std::abort();
    }
    stack_ = static_cast<char*>(memory) + kGuardBytes;
    sanitizer_fiber_ = sanitizers::new_fiber();
  }
  body_ = body;
  argument_ = argument;
  fake_stack_ = nullptr;
  const size_t size = kStackBytes - index * kStaggerStep % kStaggerBytes / 64 * 64;
  context_ = boost::context::detail::make_fcontext(stack_ + size, size, &Entry::run);
}

void Fiber::resume() {
  from_home = true;
  home.sanitizer_fiber = sanitizers::current_fiber();
  jump(&home.context, &home.fake_stack);
  sanitizers::after_jump(home.fake_stack, nullptr, nullptr);
}

void Fiber::pause() {
  sanitizers::before_jump(&fake_stack_, home.stack, home.bytes);
  sanitizers::become(home.sanitizer_fiber);
  swap(&context_, home.context);
  arrive();
}

}  // namespace headrace::simt
