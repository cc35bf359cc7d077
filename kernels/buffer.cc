#include "kernels/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace headrace::kernels {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Buffer::Buffer(size_t bytes) {
  if (bytes == 0) return;
  if (bytes > SIZE_MAX - kHugePage) throw std::bad_alloc();
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  if (bytes < kHugePage) {
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, whole));
    if (!data_) throw std::bad_alloc();
    __builtin_memset(data_, 0, whole);
  } else {
    // Fresh pages are zero already and are touched only when used. The mapping starts at a huge
    // page, or else the kernel has none to give.
    void* p = mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<uintptr_t>(p);
    const size_t before = (kHugePage - address % kHugePage) % kHugePage;
    std::byte* base = static_cast<std::byte*>(p);
    if (before) munmap(base, before);
    if (before < kHugePage) munmap(base + before + whole, kHugePage - before);
    data_ = base + before;
    madvise(data_, whole, MADV_HUGEPAGE);
  }
  size_ = bytes;
}

Buffer::~Buffer() {
  if (!data_) return;
  if (free_) {
    free_(data_);
    return;
  }
  if (size_ < kHugePage) {
    std::free(data_);
  } else {
    munmap(data_, (size_ + kHugePage - 1) / kHugePage * kHugePage);
  }
}

Buffer::Buffer(Buffer&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)),
      size_(std::exchange(o.size_, 0)),
      free_(std::move(o.free_)) {}

Buffer& Buffer::operator=(Buffer&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  std::swap(free_, o.free_);
  return *this;
}

}  // namespace headrace::kernels
