#pragma once

#include <cstddef>

// What the emulator tells the sanitizer of the program it is part of. Each function does nothing
// where that sanitizer is not linked in, so one emulator serves every build.
namespace headrace::simt::sanitizers {

extern const bool kAddress;
extern const bool kThread;
inline bool address() { return kAddress; }  // AddressSanitizer is here
inline bool thread() { return kThread; }    // ThreadSanitizer is here
inline bool present() { return address() || thread(); }

// AddressSanitizer: before and after a jump to another stack. `fake` keeps the jumper's own state
// between the two calls; null for one that never comes back.
void before_jump(void** fake, const void* stack, size_t bytes);
void after_jump(void* fake, const void** old_stack, size_t* old_bytes);
// Forgets the marks that abandoned frames left.
void unpoison(const void* memory, size_t bytes);

// ThreadSanitizer: each emulated thread is one of its fibers.
void* current_fiber();
void* new_fiber();
void delete_fiber(void* fiber);
void become(void* fiber);          // without ordering the two
void release(void* word);          // what this fiber did is before ...
void acquire(void* word);          // ... what that one does from here
void ignore_accesses(bool begin);  // of the calling fiber; calls nest

}  // namespace headrace::simt::sanitizers
