#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/half.h"
#include "kernels/kv_element.h"
#include "tests/simt/device_buffer.h"

namespace headrace::simt {

// A pool of pages, sequences in it and a step of their rows: on the host for references, and the
// same on the device. All that no row may read is poison: NaN in every type.
class AttentionCase {
 public:
  struct Shape {
    kernels::KvType type = kernels::KvType::kF16;
    int32_t heads = 2, kv_heads = 1, head_dim = 64, block_tokens = 16;
  };

  AttentionCase(const Shape& shape, uint32_t blocks, uint32_t seed)
      : heads(shape.heads),
        layout{shape.type,         kLayers,
               shape.kv_heads,     shape.head_dim,
               shape.block_tokens, kernels::KvOrder::kRows},
        pool(layout.block_bytes() * blocks, std::byte{0xff}),
        free_(blocks),
        random_(seed) {
    std::iota(free_.begin(), free_.end(), 0u);
    std::shuffle(free_.begin(), free_.end(), random_);
  }

  // Rows at [from, to) of a new sequence, whose first `to` tokens are there: the same ones for the
  // same seed. Tokens behind them are poison. A row of no token follows every `chunk` rows.
  void sequence(int32_t from, int32_t to, uint32_t seed, int32_t chunk = 1 << 20) {
    const auto table = new_table(to);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(layout.head_dim));
    for (int32_t t = 0; t < to; t++) {
      for (int32_t h = 0; h < layout.kv_heads; h++) {
        for (const auto half : {kernels::KvHalf::kKey, kernels::KvHalf::kValue}) {
          for (float& x : row) x = normal(random);
          put(table, h, half, t, row.data());
        }
      }
    }
    std::vector<float> query(static_cast<size_t>(heads * layout.head_dim));
    for (int32_t t = from; t < to; t++) {
      std::mt19937 of_token(seed + static_cast<uint32_t>(t));
      for (float& x : query) x = normal(of_token);
      add_row(table, t, query);
      if ((t - from + 1) % chunk == 0) padding(1);
    }
  }
  void padding(int32_t rows) {
    for (int32_t i = 0; i < rows; i++) add_row(kNoTable, -1, {});
  }

  size_t new_table(int32_t tokens) {
    const int32_t pages = (tokens + layout.block_tokens - 1) / layout.block_tokens;
    const size_t begin = tables_.size();
    for (int32_t i = 0; i < pages; i++) {
      tables_.push_back(free_.back());
      free_.pop_back();
    }
    return begin;
  }
  void put(size_t table, int32_t head, kernels::KvHalf half, int32_t token, const float* row) {
    const uint32_t block = tables_[table + static_cast<size_t>(token / layout.block_tokens)];
    kernels::put_kv_row(layout, host_pool().head(block, kLayer, head), half,
                        token % layout.block_tokens, row);
  }
  void add_row(size_t table, int32_t position, const std::vector<float>& query) {
    where_.push_back({table, position});
    const size_t begin = qkv.size();
    qkv.resize(begin + static_cast<size_t>((heads + 2 * layout.kv_heads) * layout.head_dim), NAN);
    std::copy(query.begin(), query.end(), qkv.begin() + static_cast<std::ptrdiff_t>(begin));
  }

  int32_t rows() const { return static_cast<int32_t>(where_.size()); }
  int32_t width() const { return heads * layout.head_dim; }
  kernels::KvPool host_pool() { return {layout, pool.data()}; }
  // The step with page tables at `tables`.
  std::vector<kernels::StepRow> step(const uint32_t* tables) const {
    std::vector<kernels::StepRow> step;
    for (const auto& [table, position] : where_) {
      step.push_back({table == kNoTable ? nullptr : tables + table, position});
    }
    return step;
  }
  const std::vector<uint32_t>& tables() const { return tables_; }

  std::vector<float> truth() {
    const auto host_step = step(tables_.data());
    std::vector<float> y(static_cast<size_t>(rows() * width()));
    kernels::reference(kernels::Attention{
        qkv.data(), host_step.data(), rows(), heads, kLayer, host_pool(), {y.data()}});
    return y;
  }

  static constexpr int32_t kLayers = 2;
  static constexpr int32_t kLayer = 1;
  static constexpr size_t kNoTable = ~size_t{0};

  int32_t heads;
  kernels::KvLayout layout;
  std::vector<std::byte> pool;
  std::vector<float> qkv;

 private:
  struct Place {
    size_t table;
    int32_t position;
  };
  std::vector<uint32_t> tables_;
  std::vector<Place> where_;
  std::vector<uint32_t> free_;
  std::mt19937 random_;
};

struct AttentionOutput {
  std::vector<float> f32;
  std::vector<uint16_t> bf16;
  std::vector<float> sums;
  bool operator==(const AttentionOutput& o) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
    };
    return same(f32, o.f32) && same(bf16, o.bf16) && same(sums, o.sums);
  }
};

// The case's memory on the device, in few pieces: each costs time at every operation of the
// stand-in.
class AttentionOnDevice {
 public:
  static constexpr int kProcessors = 64;

  explicit AttentionOnDevice(AttentionCase& c)
      : case_(c),
        pool_(c.pool),
        tables_(c.tables()),
        step_(c.step(tables_.get())),
        qkv_(c.qkv),
        scratch_(std::vector<float>(kWorkspaceFloats, NAN)),
        host_step_(c.step(c.tables().data())),
        f32_size_(static_cast<size_t>(c.rows() * c.width())),
        bf16_size_(static_cast<size_t>(c.rows() * kernels::bf16_pitch(c.width()))) {}

  cuda::AttentionPlan plan(cuda::AttentionSchedule schedule) const {
    return cuda::plan_attention(host_step_.data(), case_.rows(), case_.heads, case_.layout,
                                kProcessors, kWorkspaceFloats * sizeof(float), schedule);
  }
  cuda::Context context(cudaStream_t stream) const {
    return {stream, kProcessors, scratch_.get(), kWorkspaceFloats * sizeof(float)};
  }
  // Rows of results at `y`: f32, bf16, sums.
  kernels::Attention op(float* y) const {
    auto* bf16 = reinterpret_cast<uint16_t*>(y + bf16_begin());
    return {qkv_.get(),
            step_.get(),
            case_.rows(),
            case_.heads,
            AttentionCase::kLayer,
            {case_.layout, reinterpret_cast<std::byte*>(pool_.get())},
            {y, nullptr, bf16, y + bf16_begin() + bf16_size_ / 2},
            host_step_.data()};
  }
  size_t output_floats() const { return bf16_begin() + bf16_size_ / 2 + bf16_size_ / 32; }

  // `spread` 0: as planned. `spare` tiles more than there are.
  AttentionOutput run(cuda::AttentionSchedule schedule, int32_t spread = 0, size_t spare = 0) {
    cuda::AttentionPlan p = plan(schedule);
    p.chunks.resize(p.chunks.size() + spare);
    p.tiles.resize(p.tiles.size() + spare);
    const auto chunks = static_cast<int32_t>(p.chunks.size());
    const auto tiles = static_cast<int32_t>(p.tiles.size());
    p.chunks.insert(p.chunks.end(), p.tiles.begin(), p.tiles.end());
    const DeviceBuffer<cuda::AttentionTile> all(p.chunks);
    const DeviceBuffer<float> y(std::vector<float>(output_floats(), NAN));
    const DeviceBuffer<uint32_t> counters(
        std::vector<uint32_t>(cuda::attention_counters(kProcessors), 0));
    const TestStream stream;
    const cuda::AttentionWork work{
        all.get(),     chunks, all.get() + chunks, tiles, spread > 0 ? spread : p.spread,
        counters.get()};
    REQUIRE(cuda::enqueue(op(y.get()), work, context(stream.get())) == cudaSuccess);
    stream.wait();
    const auto count = counters.values();
    REQUIRE(std::all_of(count.begin(), count.end(), [](uint32_t n) { return n == 0; }));
    return output(y.values());
  }

 private:
  static constexpr size_t kWorkspaceFloats = 1 << 16;
  size_t bf16_begin() const { return (f32_size_ + 3) / 4 * 4; }

  AttentionOutput output(const std::vector<float>& y) const {
    const auto at = [&](size_t i) { return y.begin() + static_cast<std::ptrdiff_t>(i); };
    AttentionOutput out{{at(0), at(f32_size_)}, {}, {}};
    out.sums.assign(at(bf16_begin() + bf16_size_ / 2), y.end());
    out.bf16.resize(bf16_size_);
    std::memcpy(out.bf16.data(), &y[bf16_begin()], bf16_size_ * 2);
    return out;
  }

  AttentionCase& case_;
  DeviceBuffer<std::byte> pool_;
  DeviceBuffer<uint32_t> tables_;
  DeviceBuffer<kernels::StepRow> step_;
  DeviceBuffer<float> qkv_;
  DeviceBuffer<float> scratch_;
  std::vector<kernels::StepRow> host_step_;
  size_t f32_size_, bf16_size_;
};

}  // namespace headrace::simt
