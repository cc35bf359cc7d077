#include "tests/gpu/wrappers.h"

#include <bit>
#include <cstring>
#include <vector>

#include "tests/gpu/parts.h"

// What each wrapper makes of given words, as rows: the same program run on a GPU and on the
// emulator has to print the same, as far as a row's `compare` says (compare.py).

namespace headrace::gpu {
namespace {

using kernels::Buffer;

// What is read.
enum class Words {
  kBits,      // any
  kEvery16,   // each 16-bit word there is, in the first word; thread by thread
  kPairs16,   // any two 16-bit words
  kFloats,    // floats of all sizes that 16- and 8-bit ones have, halves of their steps, specials
  kPowers,    // floats from -100 to 100
  kPositive,  // floats from 2^-100 to 2^100
  kIntegersF16,  // pairs from -8 to 8
  kIntegersBf16,
};

struct Case {
  Wrapper wrapper;
  const char* name;
  Words words;
  const char* compare;  // bits, f32, f16 or bf16 or e4m3 (pairs): not-a-numbers are all equal
  int ulps;             // by how many steps results may differ
  unsigned columns;     // words that a thread leaves
};

constexpr unsigned kThreads = 256;
constexpr unsigned kEvery = 65536;

constexpr Case kCases[] = {
    {Wrapper::kLd16, "ld16, st16", Words::kBits, "bits", 0, 4},
    {Wrapper::kLd8, "ld8, st8", Words::kBits, "bits", 0, 4},
    {Wrapper::kLdStream16, "ld_stream16", Words::kBits, "bits", 0, 4},
    {Wrapper::kCpAsync16, "cp_async16, cp_commit, cp_wait", Words::kBits, "bits", 0, 4},
    {Wrapper::kLdmatrixX4, "ldmatrix_x4", Words::kBits, "bits", 0, 4},
    {Wrapper::kLdmatrixX4Trans, "ldmatrix_x4_trans", Words::kBits, "bits", 0, 4},
    {Wrapper::kLdmatrixX2, "ldmatrix_x2", Words::kBits, "bits", 0, 4},
    {Wrapper::kMmaF16, "mma_f16_16816", Words::kIntegersF16, "f32", 0, 4},
    {Wrapper::kMmaBf16, "mma_bf16_16816", Words::kIntegersBf16, "f32", 0, 4},
    {Wrapper::kLop3, "lop3", Words::kBits, "bits", 0, 1},
    {Wrapper::kPrmt, "prmt", Words::kBits, "bits", 0, 1},
    {Wrapper::kFastExp2, "fast_exp2", Words::kPowers, "f32", 3, 1},
    {Wrapper::kFastRsqrt, "fast_rsqrt", Words::kPositive, "f32", 3, 1},
    {Wrapper::kFmaF16x2, "fma_f16x2", Words::kPairs16, "f16", 0, 1},
    {Wrapper::kFmaBf16x2, "fma_bf16x2", Words::kPairs16, "bf16", 0, 1},
    {Wrapper::kBulk, "mbar_*, bulk_to_shared", Words::kBits, "bits", 0, 4},
    {Wrapper::kShuffles, "shfl_xor, shfl_down, shfl_idx", Words::kBits, "bits", 0, 4},
    {Wrapper::kVotes, "ballot, any, all", Words::kBits, "bits", 0, 4},
    {Wrapper::kSyncwarp, "syncthreads, syncwarp", Words::kBits, "bits", 0, 1},
    {Wrapper::kAtomicAdd, "atomic_add", Words::kBits, "bits", 0, 4},
    {Wrapper::kAtomicMax, "atomic_max", Words::kBits, "bits", 0, 4},
    {Wrapper::kAtomicCas, "atomic_cas", Words::kBits, "bits", 0, 4},
    {Wrapper::kFence, "thread_fence", Words::kBits, "bits", 0, 4},
    {Wrapper::kDependency, "grid_dependency_*", Words::kBits, "bits", 0, 4},
    {Wrapper::kHalfToFloat, "half_to_float", Words::kEvery16, "f32", 0, 1},
    {Wrapper::kFloatToHalf, "float_to_half", Words::kFloats, "f16", 0, 1},
    {Wrapper::kBf16ToFloat, "bf16_to_float", Words::kEvery16, "f32", 0, 1},
    {Wrapper::kFloatToBf16, "float_to_bf16", Words::kFloats, "bf16", 0, 1},
    {Wrapper::kHalvesToFloats, "halves_to_floats", Words::kPairs16, "f32", 0, 2},
    {Wrapper::kFloatsToHalves, "floats_to_halves", Words::kFloats, "f16", 0, 1},
    {Wrapper::kBf16sToFloats, "bf16s_to_floats", Words::kPairs16, "f32", 0, 2},
    {Wrapper::kFloatsToBf16s, "floats_to_bf16s", Words::kFloats, "bf16", 0, 1},
    {Wrapper::kE4m3sToFloats, "e4m3s_to_floats", Words::kEvery16, "f32", 0, 2},
    {Wrapper::kFloatsToE4m3s, "floats_to_e4m3s", Words::kFloats, "e4m3", 0, 1},
    {Wrapper::kFloatBits, "float_bits, bits_float", Words::kBits, "bits", 0, 1},
};

uint32_t next(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 32);
}

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// Exponents from 2^-26 to 2^17 around those of f16 and e4m3; fractions with few bits set, so that
// many lie exactly between two 16-bit or 8-bit floats; some of any size, infinities, no numbers.
uint32_t any_float(uint64_t& state) {
  const uint32_t r = next(state);
  if (r % 16 == 0) return next(state);
  if (r % 64 == 1) return 0x7f800000u | (r & 0x80000000u);
  const uint32_t exponent = 127 - 26 + r / 64 % 44;
  const uint32_t shift = 8 + r % 5 * 3;
  return (r & 0x80000000u) | exponent << 23 | (next(state) & 0x7fffffu) >> shift << shift;
}

uint32_t integers(uint64_t& state, bool bf16) {
  const auto one = [&]() -> uint32_t {
    const auto value = static_cast<float>(static_cast<int>(next(state) % 17) - 8);
    if (bf16) return bits(value) >> 16;
    const uint32_t b = bits(value);  // exact as f16: shift exponent and fraction
    if (value == 0) return 0;
    return (b >> 16 & 0x8000u) | ((b >> 23 & 0xff) - 112) << 10 | (b >> 13 & 0x3ff);
  };
  const uint32_t low = one();
  return low | one() << 16;
}

std::vector<uint32_t> words(Words kind, unsigned threads) {
  std::vector<uint32_t> out(size_t{4} * threads);
  uint64_t state = 2026;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto uniform = [&] { return static_cast<float>(next(state) >> 8) / 16777216.0f; };
    switch (kind) {
      case Words::kBits:
      case Words::kPairs16:
        out[i] = next(state);
        break;
      case Words::kEvery16:
        out[i] = static_cast<uint32_t>(i / 4);
        break;
      case Words::kFloats:
        out[i] = any_float(state);
        break;
      case Words::kPowers:
        out[i] = bits(200 * uniform() - 100);
        break;
      case Words::kPositive:
        out[i] = (27 + next(state) % 200) << 23 | next(state) >> 9;
        break;
      case Words::kIntegersF16:
        out[i] = integers(state, false);
        break;
      case Words::kIntegersBf16:
        out[i] = integers(state, true);
        break;
    }
  }
  return out;
}

bool exchanges(const Case& c) { return c.columns == 4; }

std::vector<uint32_t> run(const Bench& bench, const Case& c, unsigned threads) {
  const Buffer in = bench.values(words(c.words, threads));
  const size_t bytes = size_t{4} * threads * sizeof(uint32_t);
  const Buffer out = bench.memory(bytes), host = cuda::pinned_memory(bench.ordinal(), bytes);
  cuda::check(enqueue(c.wrapper, threads, in.as<uint32_t>(), out.as<uint32_t>(), bench.stream()), 0,
              c.name);
  cuda::check(
      cudaMemcpyAsync(host.data(), out.data(), bytes, cudaMemcpyDeviceToHost, bench.stream()), 0,
      c.name);
  bench.wait();
  std::vector<uint32_t> left;
  for (size_t i = 0; i < size_t{4} * threads; ++i)
    if (i % 4 < c.columns) left.push_back(host.as<uint32_t>()[i]);
  return left;
}

}  // namespace

void run_wrappers(const Bench& bench) {
  int major = 0;
  cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), 0,
              "its capability");
  for (const Case& c : kCases) {
    if (c.wrapper == Wrapper::kBulk && major < 9) {
      emit({{"wrapper", c.name}, {"left_out", "sm_90 has them"}});
      continue;
    }
    // What a thread makes by itself is cheap, so more of it; all there is of 16 bits.
    const unsigned threads = exchanges(c)                 ? kThreads
                             : c.words == Words::kEvery16 ? kEvery
                                                          : 16 * kThreads;
    emit({{"wrapper", c.name},
          {"compare", c.compare},
          {"ulps", c.ulps},
          {"words", run(bench, c, threads)}});
  }
}

}  // namespace headrace::gpu
