#pragma once

#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops.h"

// One slice of keys against up to kPassQueries queries that share a KV head. A query's result does
// not depend on which queries go with it: a score is one chain of fused multiply-adds over the
// dims, a value one chain over the keys in order, and what lies beyond a query's last key is never
// added. Included after one of the lanes_*.h.

namespace headrace::kernels {
namespace {

constexpr int kPassQueries = kLaneRegisters >= 32 ? 8 : 4;
static_assert(kPassQueries <= kAttentionPass);

// How many accumulators each of H queries may have: half the registers, shared, at most four.
constexpr int beside(int h) {
  const int n = kLaneRegisters / 2 / h;
  return n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

// The pages of one slice, in key order.
struct SlicePages {
  const uint16_t* k[kAttentionSlice / 16];
  const uint16_t* v[kAttentionSlice / 16];
  int32_t count = 0;
};

void find_pages(const Attention& op, const uint32_t* blocks, int32_t kv_head, int32_t slice,
                int32_t keys, SlicePages& to) {
  const KvLayout& l = op.kv.layout;
  const int32_t per_slice = kAttentionSlice / l.block_tokens;
  const int32_t wanted = (keys + l.block_tokens - 1) / l.block_tokens;
  to.count = wanted < per_slice ? wanted : per_slice;
  for (int32_t i = 0; i < to.count; ++i) {
    const uint32_t block = blocks[int64_t{slice} * per_slice + i];
    to.k[i] = reinterpret_cast<const uint16_t*>(op.kv.head(block, op.layer, kv_head));
    to.v[i] = to.k[i] + int64_t{l.head_dim} * l.block_tokens;
  }
}

// Fetches the slice that comes next, keys and values, while this one is computed: page after page,
// a pair of lines with each step. It is worked on as a copy, in registers.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const SlicePages& next, int64_t page_bytes)
      : pages_(next.k),
        left_(next.count),
        page_(page_bytes / 2),
        half_((next.count * page_bytes / kPair + 1) / 2) {
    turn();
  }
  bool over() const { return at_ == nullptr; }
  // At least one pair; stops at the last.
  void fetch(int64_t pairs) {
    do {
      prefetch(at_);
      prefetch(at_ + kPair / 4);
      at_ += kPair / 2;
      if (at_ >= end_) turn();
    } while (--pairs > 0 && at_ != nullptr);
  }
  // So many pairs with each of `steps` steps that about half of all lines are fetched in them.
  int64_t share(int64_t steps) const { return steps > 0 ? (half_ + steps - 1) / steps : 0; }

 private:
  static constexpr int64_t kPair = 128;  // bytes

  void turn() {
    at_ = nullptr;
    if (left_-- <= 0) return;
    at_ = *pages_++;
    end_ = at_ + page_;
  }

  const uint16_t* at_ = nullptr;  // what is next; null: nothing
  const uint16_t* end_ = nullptr;
  const uint16_t* const* pages_ = nullptr;
  int64_t left_ = 0;  // pages
  int64_t page_ = 0;  // elements of one
  int64_t half_ = 0;  // pairs of half the slice
};

// Scores of H queries for V vectors of 16 keys.
template <int H, int V>
void score(const uint16_t* const (&k)[V], int64_t tokens, int32_t dim, const float* q,
           int64_t q_stride, float* to, Ahead& shared, int64_t share) {
  Ahead ahead = shared;
  Lanes acc[H][V];
  for (int h = 0; h < H; ++h) {
    for (int i = 0; i < V; ++i) acc[h][i] = splat(0);
  }
  for (int64_t d = 0; d < dim; ++d) {
    if (!ahead.over()) ahead.fetch(share);
    Lanes x[V];
    for (int i = 0; i < V; ++i) x[i] = load_half(k[i] + d * tokens);
    for (int h = 0; h < H; ++h) {
      const Lanes b = splat(q[h * q_stride + d]);
      for (int i = 0; i < V; ++i) acc[h][i] = fma(x[i], b, acc[h][i]);
    }
  }
  shared = ahead;
  for (int h = 0; h < H; ++h) {
    for (int i = 0; i < V; ++i) store(to + h * kScoreStride + 16 * i, acc[h][i]);
  }
}

template <int H>
void scores(const SlicePages& pages, int64_t tokens, int32_t dim, int32_t keys, const float* q,
            float* to, Ahead& ahead) {
  constexpr int kVectors = beside(H);
  const int32_t vectors = (keys + 15) / 16, per_page = static_cast<int32_t>(tokens / 16);
  const int64_t share = ahead.share(int64_t{(vectors + kVectors - 1) / kVectors} * dim);
  for (int32_t at = 0; at < vectors; at += kVectors) {
    const uint16_t* k[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      // Past the end the last vector is computed again; nobody reads it.
      const int32_t n = at + i < vectors ? at + i : vectors - 1;
      k[i] = pages.k[n / per_page] + n % per_page * 16;
    }
    score<H, kVectors>(k, tokens, dim, q, padded_dim(dim), to + at * 16, ahead, share);
  }
}

// Scores become weights relative to the largest of them; partial[0], [1] get it and their sum.
void weigh(float* s, int32_t keys, float* partial) {
  const int32_t end = (keys + 15) / 16 * 16;
  for (int32_t i = keys; i < end; ++i) s[i] = -__builtin_inff();  // weight zero
  Lanes top = load(s);
  for (int32_t i = 16; i < end; i += 16) top = max(top, load(s + i));
  partial[0] = reduce_max(top);
  top = splat(partial[0]);
  Lanes sum = splat(0);
  for (int32_t i = 0; i < end; i += 16) {
    const Lanes w = exp2(sub(load(s + i), top));
    store(s + i, w);
    sum = add(sum, w);
  }
  partial[1] = reduce_add(sum);
}

// Adds the weighted values of keys [from, to) to C vectors of H queries.
template <int H, int C>
void weighted(const SlicePages& pages, Ahead& shared, int64_t tokens, int64_t dim, const float* w,
              int32_t from, int32_t to, int64_t at, float* o, int64_t o_stride) {
  Lanes acc[H][C];
  for (int h = 0; h < H; ++h) {
    for (int c = 0; c < C; ++c) acc[h][c] = load(o + h * o_stride + 16 * c);
  }
  Ahead ahead = shared;
  const int64_t share = ahead.share(to - from);
  for (int32_t key = from; key < to;) {
    const int32_t page = static_cast<int32_t>(key / tokens);
    int64_t t = key % tokens;
    const int64_t left = to - key, stop = left < tokens - t ? t + left : tokens;
    const uint16_t* v = pages.v[page] + at;
    for (; t < stop; ++t, ++key) {
      if (!ahead.over()) ahead.fetch(share);
      Lanes x[C];
      for (int c = 0; c < C; ++c) x[c] = load_half(v + t * dim + 16 * c);
      for (int h = 0; h < H; ++h) {
        const Lanes b = splat(w[h * kScoreStride + key]);
        for (int c = 0; c < C; ++c) acc[h][c] = fma(x[c], b, acc[h][c]);
      }
    }
  }
  shared = ahead;
  for (int h = 0; h < H; ++h) {
    for (int c = 0; c < C; ++c) store(o + h * o_stride + 16 * c, acc[h][c]);
  }
}

// The same for a last vector of n < 16 dims of one query.
void weighted_tail(const SlicePages& pages, int64_t tokens, int64_t dim, const float* w,
                   int32_t from, int32_t to, int64_t at, float* o) {
  const int n = static_cast<int>(dim - at);
  Lanes acc = load(o);
  for (int32_t key = from; key < to; ++key) {
    const uint16_t* v = pages.v[key / tokens] + key % tokens * dim + at;
    acc = fma(load_half(v, n), splat(w[key]), acc);
  }
  store(o, acc);
}

// All dims of H queries over keys [from, to).
template <int H>
void values(const SlicePages& pages, Ahead& ahead, int64_t tokens, int64_t dim, const float* w,
            int32_t from, int32_t to, float* o, int64_t o_stride) {
  constexpr int kVectors = beside(H);
  int64_t at = 0;
  for (; at + 16 * kVectors <= dim; at += 16 * kVectors) {
    weighted<H, kVectors>(pages, ahead, tokens, dim, w, from, to, at, o + at, o_stride);
  }
  for (; at + 16 <= dim; at += 16) {
    weighted<H, 1>(pages, ahead, tokens, dim, w, from, to, at, o + at, o_stride);
  }
  if (at == dim) return;
  for (int h = 0; h < H; ++h) {
    weighted_tail(pages, tokens, dim, w + h * kScoreStride, from, to, at, o + h * o_stride + at);
  }
}

// H queries; keys[] ascends. partials are partial_floats(dim) apart.
template <int H>
void attend(const SlicePages& pages, Ahead ahead, int32_t dim, int32_t tokens, const int32_t* keys,
            const float* q, float* s, float* partials) {
  const int64_t size = partial_floats(dim);
  scores<H>(pages, tokens, dim, keys[H - 1], q, s, ahead);
  for (int h = 0; h < H; ++h) {
    weigh(s + h * kScoreStride, keys[h], partials + h * size);
    for (int64_t d = kPartialHeader; d < size; d += 16) store(partials + h * size + d, splat(0));
  }
  float* o = partials + kPartialHeader;
  values<H>(pages, ahead, tokens, dim, s, 0, keys[0], o, size);
  for (int h = 1; h < H; ++h) {
    if (keys[h] > keys[0]) {
      values<1>(pages, ahead, tokens, dim, s + h * kScoreStride, keys[0], keys[h], o + h * size,
                size);
    }
  }
}

template <int H>
void attend_up_to(int n, const SlicePages& pages, const Ahead& ahead, int32_t dim, int32_t tokens,
                  const int32_t* keys, const float* q, float* s, float* partials) {
  if constexpr (H > 1) {
    if (n < H) return attend_up_to<H - 1>(n, pages, ahead, dim, tokens, keys, q, s, partials);
  }
  attend<H>(pages, ahead, dim, tokens, keys, q, s, partials);
}

void attend_slice(const SlicePages& pages, const Ahead& ahead, int32_t dim, int32_t tokens,
                  int queries, const int32_t* keys, const float* q, float* s, float* partials) {
  attend_up_to<kPassQueries>(queries, pages, ahead, dim, tokens, keys, q, s, partials);
}

}  // namespace
}  // namespace headrace::kernels
