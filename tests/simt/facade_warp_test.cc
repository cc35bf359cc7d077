#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/simt/every_order.h"

// The facade's warp collectives and matrices against plain loops over lanes.
namespace headrace::cuda {
namespace {

using simt::in_every_order;
using simt::run_grid;
using simt::text;

constexpr uint32_t kHigh = 0xffff0000;

template <class T>
__global__ void shuffles(T* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T value = static_cast<T>(threadIdx.x) + 1;
  T* own = out + threadIdx.x * 4;
  own[0] = shfl_xor(kFullMask, value, 5);
  own[1] = shfl_down(kFullMask, value, 3);
  own[2] = shfl_idx(kFullMask, value, 31 - lane);
  if (lane >= 16) own[3] = shfl_idx(kHigh, value, 16 + (lane * 7) % 16);
}

template <class T>
void check_shuffles() {
  in_every_order([] {
    std::vector<T> out(64 * 4);
    CHECK(text(run_grid(make_launch("shuffles", 1, 64, 0, shuffles<T>, out.data()))) == "");
    for (int thread = 0; thread < 64; ++thread) {
      const int first = thread / 32 * 32;
      const int lane = thread % 32;
      const T* own = out.data() + thread * 4;
      const auto value = [&](int of) { return static_cast<T>(first + of + 1); };
      CHECK(own[0] == value(lane ^ 5));
      CHECK(own[1] == value(lane + 3 < 32 ? lane + 3 : lane));
      CHECK(own[2] == value(31 - lane));
      CHECK(own[3] == (lane < 16 ? T{} : value(16 + (lane * 7) % 16)));
    }
  });
}

TEST_CASE("facade: shuffles") {
  check_shuffles<int>();
  check_shuffles<uint32_t>();
  check_shuffles<float>();
}

__global__ void stranger(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = shfl_idx(0x0000ffffu, 1.0f, 20);
}

TEST_CASE("facade: a lane outside of the mask gives a NaN") {
  std::vector<float> out(16);
  CHECK(text(run_grid(make_launch("stranger", 1, 32, 0, stranger, out.data()))) == "");
  CHECK(std::isnan(out[3]));
}

__global__ void votes(uint32_t* out, int limit) {
  const bool p = static_cast<int>(threadIdx.x) < limit;
  uint32_t* own = out + threadIdx.x * 4;
  own[0] = ballot(kFullMask, p);
  own[1] = any(kFullMask, p);
  own[2] = all(kFullMask, p);
  if (threadIdx.x >= 16) own[3] = ballot(kHigh, p);
}

TEST_CASE("facade: votes") {
  in_every_order([] {
    for (const int limit : {0, 1, 20, 31, 32}) {
      std::vector<uint32_t> out(32 * 4);
      CHECK(text(run_grid(make_launch("votes", 1, 32, 0, votes, out.data(), limit))) == "");
      const auto expected = static_cast<uint32_t>((uint64_t{1} << limit) - 1);
      for (unsigned lane = 0; lane < 32; ++lane) {
        CHECK(out[lane * 4] == expected);
        CHECK(out[lane * 4 + 1] == (limit > 0));
        CHECK(out[lane * 4 + 2] == (limit == 32));
        CHECK(out[lane * 4 + 3] == (lane < 16 ? 0 : expected & kHigh));
      }
    }
  });
}

// Four 8 x 8 matrices of 16-bit numbers below each other; element (m, i, j) is 64 m + 8 i + j.
__global__ void load(uint32_t* out) {
  HEADRACE_SHARED(uint16_t, matrices);
  for (unsigned i = threadIdx.x; i < 256; i += 32) matrices[i] = static_cast<uint16_t>(i);
  syncwarp();
  const uint16_t* row = matrices + threadIdx.x * 8;
  uint32_t plain[4];
  uint32_t transposed[4];
  uint32_t two[2];
  ldmatrix_x4(plain, row);
  ldmatrix_x4_trans(transposed, row);
  ldmatrix_x2(two, threadIdx.x < 16 ? row : nullptr);
  uint32_t* own = out + threadIdx.x * 10;
  for (unsigned m = 0; m < 4; ++m) {
    own[m] = plain[m];
    own[4 + m] = transposed[m];
    if (m < 2) own[8 + m] = two[m];
  }
}

TEST_CASE("facade: ldmatrix hands two neighbours of a row, or of a column, to each lane") {
  in_every_order([] {
    std::vector<uint32_t> out(32 * 10);
    CHECK(text(run_grid(make_launch("load", 1, 32, 512, load, out.data()))) == "");
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t m = 0; m < 4; ++m) {
        const uint32_t row = m * 64 + lane / 4 * 8 + lane % 4 * 2;
        const uint32_t column = m * 64 + lane % 4 * 2 * 8 + lane / 4;
        CHECK(out[lane * 10 + m] == (row | (row + 1) << 16));
        CHECK(out[lane * 10 + 4 + m] == (column | (column + 8) << 16));
        if (m < 2) CHECK(out[lane * 10 + 8 + m] == (row | (row + 1) << 16));
      }
    }
  });
}

struct Tiles {
  alignas(16) uint16_t a[16][16];  // rows of A
  alignas(16) uint16_t b[16][8];   // rows of B
};

// d (16 x 8) += A B, A through ldmatrix, B through its transposing form.
template <bool kBf16>
__global__ void multiply(const uint16_t* a, const uint16_t* b, float* d) {
  HEADRACE_SHARED(Tiles, tiles);
  const unsigned lane = threadIdx.x;
  st16(&tiles->a[lane / 2][lane % 2 * 8], ld16(a + lane * 8));
  if (lane < 16) st16(tiles->b[lane], ld16(b + lane * 8));
  syncwarp();
  uint32_t left[4];
  uint32_t right[4];
  ldmatrix_x4(left, &tiles->a[lane % 16][lane / 16 * 8]);
  ldmatrix_x4_trans(right, tiles->b[lane % 16]);
  const uint32_t low[2] = {right[0], right[1]};
  float sums[4];
  float* const own = d + lane / 4 * 8 + lane % 4 * 2;
  for (int i = 0; i < 4; ++i) sums[i] = own[i / 2 * 64 + i % 2];
  if constexpr (kBf16) {
    mma_bf16_16816(sums, left, low);
  } else {
    mma_f16_16816(sums, left, low);
  }
  for (int i = 0; i < 4; ++i) own[i / 2 * 64 + i % 2] = sums[i];
}

template <bool kBf16>
void check_multiply() {
  std::mt19937 random(5);
  // Small integers: exact in every format, so the sums are.
  std::vector<float> a(256);
  std::vector<float> b(128);
  std::vector<uint4> words(48);
  auto* bits = reinterpret_cast<uint16_t*>(words.data());
  for (unsigned i = 0; i < 384; ++i) {
    const float value = static_cast<float>(random() % 17) - 8;
    (i < 256 ? a[i] : b[i - 256]) = value;
    bits[i] = kBf16 ? float_to_bf16(value) : float_to_half(value);
  }
  in_every_order([&] {
    std::vector<float> d(128, 0.5f);
    CHECK(text(run_grid(make_launch("multiply", 1, 32, sizeof(Tiles), multiply<kBf16>, bits,
                                    bits + 256, d.data()))) == "");
    for (unsigned i = 0; i < 128; ++i) {
      float sum = 0.5f;
      for (unsigned k = 0; k < 16; ++k) sum += a[i / 8 * 16 + k] * b[k * 8 + i % 8];
      CHECK(d[i] == sum);
    }
  });
}

TEST_CASE("facade: mma multiplies what ldmatrix loads") {
  check_multiply<false>();
  check_multiply<true>();
}

}  // namespace
}  // namespace headrace::cuda
