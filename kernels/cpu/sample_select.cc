#include "kernels/cpu/sample_select.h"

#include <algorithm>
#include <bit>

#include "kernels/cpu/bodies.h"
#include "kernels/philox.h"

namespace headrace::kernels {
namespace {

size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Tokens in the order of falling weight, ties to the lower id, without those of weight zero. Sorted
// only as far as someone looks: the first few hundred hold nearly all probability.
class Order {
 public:
  Order(const SampleMemory& m, int32_t vocab) : m_(m) {
    std::fill_n(m.starts, kWeightBuckets + 1, 0u);
    for (int32_t i = 0; i < vocab; ++i) {
      total_ += m.weights[i];
      if (m.weights[i] > 0) ++m.starts[bucket(m.weights[i]) + 1];
    }
    for (int32_t b = 0; b < kWeightBuckets; ++b) m.starts[b + 1] += m.starts[b];
    count_ = static_cast<int32_t>(m.starts[kWeightBuckets]);
    // Each start moves on as its bucket fills and so ends as the next one's.
    for (int32_t i = 0; i < vocab; ++i) {
      if (m.weights[i] > 0) m.ids[m.starts[bucket(m.weights[i])]++] = static_cast<uint32_t>(i);
    }
  }

  int32_t count() const { return count_; }
  double total() const { return total_; }  // added up by id
  uint32_t id(int32_t i) {
    while (i >= sorted_) sort_bucket();
    return m_.ids[i];
  }
  float weight(int32_t i) { return m_.weights[id(i)]; }

 private:
  static uint32_t bucket(float weight) {
    const uint32_t bits = std::min(std::bit_cast<uint32_t>(weight), 0x3f800000u);
    return (0x3f800000u - bits) >> 18;
  }
  void sort_bucket() {
    const auto end = static_cast<int32_t>(m_.starts[next_++]);
    const float* w = m_.weights;
    std::sort(m_.ids + sorted_, m_.ids + end,
              [w](uint32_t a, uint32_t b) { return w[a] != w[b] ? w[a] > w[b] : a < b; });
    sorted_ = end;
  }

  const SampleMemory m_;
  int32_t count_ = 0, sorted_ = 0, next_ = 0;
  double total_ = 0;
};

}  // namespace

size_t sample_memory_bytes(int32_t vocab) {
  const auto n = static_cast<size_t>(vocab);
  return lines(n * sizeof(float)) + lines(n * sizeof(uint32_t)) +
         lines((kWeightBuckets + 1) * sizeof(uint32_t));
}

SampleMemory sample_memory(std::byte* scratch, int32_t vocab) {
  SampleMemory m;
  m.weights = reinterpret_cast<float*>(scratch);
  scratch += lines(static_cast<size_t>(vocab) * sizeof(float));
  m.ids = reinterpret_cast<uint32_t*>(scratch);
  scratch += lines(static_cast<size_t>(vocab) * sizeof(uint32_t));
  m.starts = reinterpret_cast<uint32_t*>(scratch);
  return m;
}

size_t sample_scratch_bytes(const Sample& op, int threads) {
  const bool any =
      std::any_of(op.params, op.params + op.rows, [](const SampleRow& r) { return !greedy(r); });
  return any ? sample_memory_bytes(op.vocab) * static_cast<size_t>(threads) : 0;
}

int32_t select_token(const SampleMemory& memory, int32_t vocab, const SampleRow& row) {
  Order order(memory, vocab);
  int32_t kept = order.count();  // what remains is always a prefix of the order
  double sum = order.total();
  if (row.top_k > 0 && row.top_k < kept) {
    kept = row.top_k;
    sum = 0;
    for (int32_t i = 0; i < kept; ++i) sum += order.weight(i);
  }
  if (row.top_p < 1) {
    const double enough = row.top_p * sum;
    const int32_t before = kept;
    sum = 0;
    for (kept = 0; kept < before && (kept == 0 || sum < enough);) sum += order.weight(kept++);
  }
  if (row.min_p > 0) {
    const float least = row.min_p * order.weight(0);
    const int32_t before = kept;
    sum = 0;
    for (kept = 0; kept < before && (kept == 0 || order.weight(kept) >= least);) {
      sum += order.weight(kept++);
    }
  }
  const double target = uniform(row.seed, row.index) * sum;
  double passed = 0;
  for (int32_t i = 0; i + 1 < kept; ++i) {
    passed += order.weight(i);
    if (passed > target) return static_cast<int32_t>(order.id(i));
  }
  return static_cast<int32_t>(order.id(kept - 1));
}

}  // namespace headrace::kernels
