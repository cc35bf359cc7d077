#include "kernels/device.h"

#include <cpuid.h>
#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace headrace::kernels {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

struct CpuidWords {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

CpuidWords cpuid(uint32_t leaf) {
  CpuidWords w;
  if (!__get_cpuid_count(leaf, 0, &w.a, &w.b, &w.c, &w.d)) return {};
  return w;
}

// Which register states the kernel saves: a processor may know instructions that it must not run.
uint64_t enabled_states() {
  if (!(cpuid(1).c & bit_OSXSAVE)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool has_all(uint64_t value, uint64_t mask) { return (value & mask) == mask; }

bool has_avx2() {
  constexpr uint64_t kSseAvx = 0x6;
  return has_all(enabled_states(), kSseAvx) && has_all(cpuid(1).c, bit_AVX | bit_FMA | bit_F16C) &&
         has_all(cpuid(7).b, bit_AVX2);
}

bool has_avx512_vnni() {
  constexpr uint64_t kSseAvx512 = 0xe6;  // opmask and both halves of the zmm registers too
  const CpuidWords w = cpuid(7);
  return has_avx2() && has_all(enabled_states(), kSseAvx512) &&
         has_all(w.b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
         has_all(w.c, bit_AVX512VNNI);
}

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
  if (size_ < kHugePage) {
    std::free(data_);
  } else {
    munmap(data_, (size_ + kHugePage - 1) / kHugePage * kHugePage);
  }
}

Buffer::Buffer(Buffer&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

const char* name(CpuPath path) {
  switch (path) {
    case CpuPath::kPortable:
      return "portable";
    case CpuPath::kAvx2:
      return "avx2";
    case CpuPath::kAvx512Vnni:
      return "avx512vnni";
  }
  return "?";
}

std::optional<CpuPath> parse_cpu_path(const std::string& text) {
  for (CpuPath path : {CpuPath::kPortable, CpuPath::kAvx2, CpuPath::kAvx512Vnni}) {
    if (text == name(path)) return path;
  }
  return std::nullopt;
}

bool supported(CpuPath path) {
  static const bool avx2 = has_avx2(), avx512 = has_avx512_vnni();
  switch (path) {
    case CpuPath::kPortable:
      return true;
    case CpuPath::kAvx2:
      return avx2;
    case CpuPath::kAvx512Vnni:
      return avx512;
  }
  return false;
}

CpuPath best_cpu_path() {
  if (supported(CpuPath::kAvx512Vnni)) return CpuPath::kAvx512Vnni;
  return supported(CpuPath::kAvx2) ? CpuPath::kAvx2 : CpuPath::kPortable;
}

}  // namespace headrace::kernels
