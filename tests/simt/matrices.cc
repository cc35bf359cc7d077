#include <cuda_fp16.h>

#include <bit>
#include <cstring>
#include <vector>

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

const std::vector<float>& half_values() {
  static const std::vector<float> values = [] {
    std::vector<float> all(65536);
    for (uint32_t bits = 0; bits < all.size(); ++bits) {
      all[bits] = __half2float(__half_raw{static_cast<unsigned short>(bits)});
    }
    return all;
  }();
  return values;
}

template <bool kBf16>
float value(uint32_t bits) {
  if constexpr (kBf16) return std::bit_cast<float>(bits << 16);
  return half_values()[bits];
}

template <bool kBf16>
void combine_multiply(void* const* operands, uint32_t /*mask*/) {
  float a[16][16];
  float b[8][16];  // by column
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    const auto& operand = *static_cast<const MultiplyOperand*>(operands[lane]);
    const unsigned g = lane / 4;
    const unsigned t = lane % 4 * 2;
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned word = i / 2;
      a[g + word % 2 * 8][t + i % 2 + word / 2 * 8] =
          value<kBf16>(operand.a[word] >> (i % 2 * 16) & 0xffff);
    }
    for (unsigned i = 0; i < 4; ++i) {
      b[g][t + i % 2 + i / 2 * 8] = value<kBf16>(operand.b[i / 2] >> (i % 2 * 16) & 0xffff);
    }
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    float* d = static_cast<const MultiplyOperand*>(operands[lane])->d;
    for (unsigned i = 0; i < 4; ++i) {
      const float* row = a[lane / 4 + i / 2 * 8];
      const float* column = b[lane % 4 * 2 + i % 2];
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += row[k] * column[k];
      d[i] += sum;
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
