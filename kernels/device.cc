#include "kernels/device.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "kernels/check.h"

namespace headrace::kernels {
namespace {

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

// The tiles' state is large, so a process asks for it once (Linux,
// Documentation/arch/x86/xstate.rst). A kernel that is too old, or a sandbox that forbids the call,
// says no.
bool has_amx() {
  constexpr uint64_t kTiles = 0x60000;  // configuration and data
  constexpr uint32_t kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return has_avx512_vnni() && has_all(cpuid(7).d, kTile | kInt8) &&
         has_all(enabled_states(), kTiles) && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

void Device::write(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void Device::read(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void Device::zero_blocks(const KvPool& pool, std::span<const uint32_t> blocks) {
  for (const uint32_t block : blocks)
    std::memset(pool.head(block, 0, 0), 0, pool.layout.block_bytes());
}

void Device::run(const MatMulSwiGlu&) { KERNELS_CHECK(pairs()); }

void Device::run(const MatMulRope& op) {
  run(product_of(op));
  run(op.rope);
}

const char* name(CpuPath path) {
  switch (path) {
    case CpuPath::kPortable:
      return "portable";
    case CpuPath::kAvx2:
      return "avx2";
    case CpuPath::kAvx512Vnni:
      return "avx512vnni";
    case CpuPath::kAmx:
      return "amx";
  }
  return "?";
}

std::optional<CpuPath> parse_cpu_path(const std::string& text) {
  for (CpuPath path : kCpuPaths) {
    if (text == name(path)) return path;
  }
  return std::nullopt;
}

std::optional<KvType> parse_kv_type(const std::string& text) {
  for (const KvType type : kKvTypes)
    if (text == name(type)) return type;
  return std::nullopt;
}

bool supported(CpuPath path) {
  static const bool avx2 = has_avx2(), avx512 = has_avx512_vnni(), amx = has_amx();
  switch (path) {
    case CpuPath::kPortable:
      return true;
    case CpuPath::kAvx2:
      return avx2;
    case CpuPath::kAvx512Vnni:
      return avx512;
    case CpuPath::kAmx:
      return amx;
  }
  return false;
}

CpuPath best_cpu_path() {
  if (supported(CpuPath::kAmx)) return CpuPath::kAmx;
  if (supported(CpuPath::kAvx512Vnni)) return CpuPath::kAvx512Vnni;
  return supported(CpuPath::kAvx2) ? CpuPath::kAvx2 : CpuPath::kPortable;
}

}  // namespace headrace::kernels
