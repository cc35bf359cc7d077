#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>

#include "tests/simt/sanitizers.h"

namespace headrace::simt {

namespace context = boost::context::detail;

constexpr size_t kGuardBytes = 4096;
constexpr size_t kStaggerStep = 1088;  // 17 cache lines: an odd number, so all sets are reached
constexpr size_t kStaggerBytes = size_t{64} << 10;

struct Fiber::Entry {
  static void run(context::transfer_t from) {
    Fiber& fiber = *static_cast<Fiber*>(from.data);
    fiber.resumer_ = from.fctx;
    sanitizers::after_jump(nullptr, &fiber.resumer_stack_, &fiber.resumer_bytes_);
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
  const size_t size = kStackBytes - index * kStaggerStep % kStaggerBytes / 64 * 64;
  context_ = context::make_fcontext(stack_ + size, size, &Entry::run);
}

void Fiber::resume() {
  void* fake = nullptr;
  resumer_fiber_ = sanitizers::current_fiber();
  sanitizers::before_jump(&fake, stack_, kStackBytes);
  sanitizers::become(sanitizer_fiber_);
  context_ = context::jump_fcontext(context_, this).fctx;
  sanitizers::after_jump(fake, nullptr, nullptr);
}

void Fiber::pause() {
  sanitizers::before_jump(&fake_stack_, resumer_stack_, resumer_bytes_);
  sanitizers::become(resumer_fiber_);
  resumer_ = context::jump_fcontext(resumer_, this).fctx;
  sanitizers::after_jump(fake_stack_, &resumer_stack_, &resumer_bytes_);
}

}  // namespace headrace::simt
