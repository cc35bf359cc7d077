#include <sys/mman.h>

#include "tests/simt/cudart/state.h"

// Device memory that the host cannot touch: by a protection key, whose rights are each thread's
// own, where the processor has them; else by the rights of the pages, open to the whole process
// while an operation runs. The latter cannot serve a device thread.
namespace headrace::simt {
namespace {

std::mutex guard_mutex;
int depth = 0;  // operations and calls that touch device memory now
bool wanted = true;

int key() {
  static const int kKey = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return kKey;
}

void set_pages(int rights) {
  for (const Device& device : runtime().devices) {
    if (device.high_water) mprotect(device.arena, device.high_water, rights);
  }
}

bool by_pages() { return wanted && key() < 0 && runtime().mode != Streams::kThreaded; }

}  // namespace

bool host_guard_works(Streams mode) { return key() >= 0 || mode != Streams::kThreaded; }

DeviceAccess::DeviceAccess() {
  if (key() >= 0) pkey_set(key(), 0);
  std::lock_guard lock(guard_mutex);
  if (++depth == 1 && by_pages()) set_pages(PROT_READ | PROT_WRITE);
}

DeviceAccess::~DeviceAccess() {
  std::lock_guard lock(guard_mutex);
  if (--depth == 0 && by_pages()) set_pages(PROT_NONE);
  if (key() >= 0 && wanted) pkey_set(key(), PKEY_DISABLE_ACCESS);
}

void guard_new_arena(char* arena) {
  if (key() >= 0) pkey_mprotect(arena, kArenaBytes, PROT_NONE, key());
}

void guard_extend(Device& device, size_t to) {
  std::lock_guard lock(guard_mutex);
  const int rights = PROT_READ | PROT_WRITE;
  char* from = device.arena + device.high_water;
  const size_t bytes = to - device.high_water;
  if (key() >= 0) {
    pkey_mprotect(from, bytes, rights, key());
  } else {
    mprotect(from, bytes, rights);  // the end of the caller's access closes it
  }
  device.high_water = to;
}

void set_host_guard(bool on) {
  Runtime& rt = runtime();
  Lock lock(rt.mutex);
  std::lock_guard guard(guard_mutex);
  wanted = on;
  if (key() >= 0) {
    pkey_set(key(), on ? PKEY_DISABLE_ACCESS : 0);
  } else {
    set_pages(by_pages() ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
}

}  // namespace headrace::simt
