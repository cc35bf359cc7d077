#include "tests/simt/sanitizers.h"

// Weak: null where the program is linked without that sanitizer.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void**, const void*, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned);
__attribute__((weak)) void __tsan_destroy_fiber(void*);
__attribute__((weak)) void __tsan_switch_to_fiber(void*, unsigned);
__attribute__((weak)) void __tsan_release(void*);
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char*, int);
}

namespace headrace::simt::sanitizers {

const bool kAddress = __asan_unpoison_memory_region != nullptr;
const bool kThread = __tsan_create_fiber != nullptr;

void before_jump(void** fake, const void* stack, size_t bytes) {
  if (address()) __sanitizer_start_switch_fiber(fake, stack, bytes);
}

void after_jump(void* fake, const void** old_stack, size_t* old_bytes) {
  if (address()) __sanitizer_finish_switch_fiber(fake, old_stack, old_bytes);
}

void unpoison(const void* memory, size_t bytes) {
  if (address()) __asan_unpoison_memory_region(memory, bytes);
}

void* current_fiber() { return thread() ? __tsan_get_current_fiber() : nullptr; }
void* new_fiber() { return thread() ? __tsan_create_fiber(0) : nullptr; }

void delete_fiber(void* fiber) {
  if (fiber) __tsan_destroy_fiber(fiber);
}

void become(void* fiber) {
  constexpr unsigned kUnordered = 1;
  if (thread()) __tsan_switch_to_fiber(fiber, kUnordered);
}

void release(void* word) {
  if (thread()) __tsan_release(word);
}

void acquire(void* word) {
  if (thread()) __tsan_acquire(word);
}

void ignore_accesses(bool begin) {
  if (!thread()) return;
  if (begin) {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  } else {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
}

}  // namespace headrace::simt::sanitizers
