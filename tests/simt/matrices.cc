#include <bit>
#include <cstring>

#include "tests/simt/block.h"

// ldmatrix and mma.sync m16n8k16: what each lane of a warp holds of the matrices, as the PTX ISA
// draws it. g is the lane's group of four, t its place in the group.
namespace headrace::simt {
namespace {

constexpr uint32_t kAllLanes = ~uint32_t{0};

struct LoadOperand {
  uint32_t* fragment;
  int count;
  bool transposed;
  uint4 row;
};

void combine_load(void* const* operands, uint32_t /*mask*/) {
  const auto& first = *static_cast<const LoadOperand*>(operands[0]);
  for (int matrix = 0; matrix < first.count; ++matrix) {
    uint16_t rows[8][8];
    for (int i = 0; i < 8; ++i) {
      std::memcpy(rows[i], &static_cast<LoadOperand*>(operands[matrix * 8 + i])->row, 16);
    }
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      const unsigned g = lane / 4;
      const unsigned t = lane % 4 * 2;
      const uint32_t low = first.transposed ? rows[t][g] : rows[g][t];
      const uint32_t high = first.transposed ? rows[t + 1][g] : rows[g][t + 1];
      static_cast<LoadOperand*>(operands[lane])->fragment[matrix] = low | high << 16;
    }
  }
}

struct MultiplyOperand {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

using Four = float __attribute__((vector_size(16)));

// All values exactly.
template <bool kBf16>
float value(uint32_t bits) {
  if constexpr (kBf16) return std::bit_cast<float>(bits << 16);
  const uint32_t sign = (bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 0x3ff;
  uint32_t rest = (exponent + 112) << 23 | mantissa << 13;
  if (exponent == 0) rest = std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  if (exponent == 31) rest = 0x7f800000 | mantissa << 13;
  return std::bit_cast<float>(sign | rest);
}

// Each sum in the order of k, beginning at zero, added to d at the end.
template <bool kBf16>
void combine_multiply(void* const* operands, uint32_t /*mask*/) {
  float a[16][16];
  union {
    float one[16][8];
    Four four[16][2];
  } b;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    const auto& operand = *static_cast<const MultiplyOperand*>(operands[lane]);
    const unsigned g = lane / 4;
    const unsigned t = lane % 4 * 2;
    for (unsigned word = 0; word < 4; ++word) {
      float* two = &a[g + word % 2 * 8][t + word / 2 * 8];
      two[0] = value<kBf16>(operand.a[word] & 0xffff);
      two[1] = value<kBf16>(operand.a[word] >> 16);
    }
    for (unsigned word = 0; word < 2; ++word) {
      b.one[t + word * 8][g] = value<kBf16>(operand.b[word] & 0xffff);
      b.one[t + word * 8 + 1][g] = value<kBf16>(operand.b[word] >> 16);
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    Four sums[2] = {};
    for (unsigned k = 0; k < 16; ++k) {
      sums[0] += a[row][k] * b.four[k][0];
      sums[1] += a[row][k] * b.four[k][1];
    }
    for (unsigned t = 0; t < 4; ++t) {
      float* d = static_cast<const MultiplyOperand*>(operands[row % 8 * 4 + t])->d + row / 8 * 2;
      d[0] += sums[t / 2][t % 2 * 2];
      d[1] += sums[t / 2][t % 2 * 2 + 1];
    }
  }
}

void meet_all(const char* name, void (*combine)(void* const*, uint32_t), void* operand, Site at) {
  Lane& lane = *running;
  const Meeting meeting{name, kAllLanes, false, combine, operand};
  lane.ask(name, at, [&] { lane.block->warp(lane).arrive(lane, meeting); });
}

}  // namespace

void load_matrices(uint32_t* fragment, int count, bool transposed, uint4 row, Site at) {
  LoadOperand operand{fragment, count, transposed, row};
  meet_all("ldmatrix", &combine_load, &operand, at);
}

void multiply_16816(float* d, const uint32_t* a, const uint32_t* b, bool bf16, Site at) {
  MultiplyOperand operand{d, a, b};
  meet_all("mma", bf16 ? &combine_multiply<true> : &combine_multiply<false>, &operand, at);
}

}  // namespace headrace::simt
