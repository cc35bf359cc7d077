#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/activation.h"
#include "kernels/cost.h"
#include "kernels/kv.h"
#include "kernels/matrix.h"

namespace headrace::kernels {

// The operations of a forward pass. Each is a plain struct; `cost` says what it must move and
// compute, `reference` computes it slowly and plainly in double on the host. Pointers are device
// pointers of the device that runs it, 64-byte aligned; shapes are row-major.

// y[r,:] = table[ids[r],:], or 0 where ids[r] < 0
struct Embed {
  Matrix table;        // [vocab, dim]
  const int32_t* ids;  // [rows], each below vocab
  int32_t rows;
  float* y;  // [rows, dim]
};

// y[r,:] = x[r,:] * gain / sqrt(mean(x[r,:]^2) + eps)
struct RmsNorm {
  const float* x;     // [rows, dim]
  const float* gain;  // [dim]
  int32_t rows;
  int32_t dim;
  float eps;
  RowsOut y;  // [rows, dim]; y.f32 may be x
};

// y[r,:] = blocks of x[r,:]
struct QuantizeRows {
  const float* x;  // [rows, dim], dim a multiple of 32
  int32_t rows;
  int32_t dim;
  QuantBlock* y;  // [rows, dim/32]
};

// y[r,n] = sum_k w[n,k] * x[r,k]  (+ y[r,n] if `add`)
// The order of summation over k depends on (N, K) only (determinism rule a).
struct MatMul {
  Matrix w;  // [n, k]
  Rows x;    // [rows, k]; blocks if the device quantizes and w is quantized
  int32_t rows;
  float* y;        // [rows, n], rows `stride` floats apart
  int64_t stride;  // >= n
  bool add;        // residual: y += w x
};

// y = silu(a) * b, where [a, b] = w x: a product and SwiGlu in one, without the halves in memory.
struct MatMulSwiGlu {
  Matrix w;  // [2*ffn, k], paired: gate, then up
  Rows x;    // [rows, k]
  int32_t rows;
  RowsOut y;  // [rows, ffn]
};

// Its product by itself, of which no result is kept.
constexpr MatMul product_of(const MatMulSwiGlu& op) {
  return {op.w, op.x, op.rows, nullptr, op.w.rows, false};
}

// y[r,:] = x[index[r],:], or 0 where index[r] < 0
struct GatherRows {
  const float* x;        // [any, dim]
  const int32_t* index;  // [rows]
  int32_t rows;
  int32_t dim;
  float* y;  // [rows, dim]
};

// Rotates neighbouring pairs of q and k by their position, then appends k and v to the pool.
// Pair i of a head turns by position * inv_freq[i]; cos and sin come from a table of the model.
struct RopeAppendKv {
  float* qkv;           // [rows, (heads + 2*kv_heads) * head_dim]; q is rotated in place
  const StepRow* step;  // [rows]; may be device memory, as all pointers
  const float* rope;    // [context, rotated/2, 2]: cos, sin
  int32_t rows;
  int32_t heads;
  int32_t rotated;  // leading dims of a head that rotate; even, <= head_dim
  int32_t layer;
  KvPool kv;
};

// y[r,h,:] = sum_t softmax_t(q[r,h] . k[t] / sqrt(head_dim)) v[t],  t = 0..position of r
// One operation for decode rows and chunk rows in any mix; KV is always read from the pool.
struct Attention {
  const float* qkv;     // [rows, (heads + 2*kv_heads) * head_dim]; only q is read
  const StepRow* step;  // [rows]
  int32_t rows;
  int32_t heads;
  int32_t layer;
  KvPool kv;
  RowsOut y;                           // [rows, heads * head_dim]
  const StepRow* host_step = nullptr;  // `step` as `cost` may read it; null: `step` itself
};

// rope.qkv = w x, then RopeAppendKv: a product and what follows it in one.
struct MatMulRope {
  Matrix w;           // [(heads + 2*kv_heads) * head_dim, k], head_dim even
  Rows x;             // [rope.rows, k]
  RopeAppendKv rope;  // its qkv is an output alone
};

// Its product by itself.
constexpr MatMul product_of(const MatMulRope& op) {
  return {op.w, op.x, op.rope.rows, op.rope.qkv, op.w.rows, false};
}

// y[r,i] = silu(x[r,i]) * x[r,ffn+i]
struct SwiGlu {
  const float* x;  // [rows, 2*ffn]: gate, then up
  int32_t rows;
  int32_t ffn;
  RowsOut y;  // [rows, ffn]
};

// What penalties and bias do to one logit: x = x > 0 ? x / divide : x * divide, then x += add.
struct LogitEdit {
  int32_t id;
  float divide;  // repetition penalty, 1: none
  float add;     // bias - presence_penalty - frequency_penalty * count
};

// logits[r, e.id] is edited by each e in edits[begins[r], begins[r+1]); an id at most once a row.
struct AdjustLogits {
  float* logits;           // [rows, vocab], rows `stride` floats apart
  const LogitEdit* edits;  // ids in [0, vocab)
  const int32_t* begins;   // [rows + 1]
  int32_t rows;
  int32_t vocab;
  int64_t stride;
  const int32_t* host_begins = nullptr;  // as host_step of Attention, as all that are named so
};

// ln softmax(logits[r, :vocab]) of the chosen token and of the counts[r] most probable ones, at
// temperature 1. Finite: at least kLogprobMin. Equal logits: the lower id first. Past the
// vocabulary the id is -1.
constexpr float kLogprobMin = -9999;
struct LogProbs {
  const float* logits;    // [rows, vocab], rows `stride` floats apart
  const int32_t* chosen;  // [rows]; negative: the row is left out
  const int32_t* counts;  // [rows], <= top; 0: the row is left out
  int32_t rows;
  int32_t vocab;
  int64_t stride;
  int32_t top;            // stride of the outputs
  float* chosen_logprob;  // [rows]
  int32_t* top_ids;       // [rows, top]
  float* top_logprobs;    // [rows, top]
  const int32_t* host_counts = nullptr;
};

// How one row is sampled; see protocol/generation.h for the meaning.
struct SampleRow {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  uint64_t seed;
  uint32_t index;  // of the token in the generated sequence: Philox's counter
};

// id[r] = the next token of row r; -1 if a logit that matters is NaN or infinite.
struct Sample {
  const float* logits;      // [rows, vocab]
  const SampleRow* params;  // [rows]
  int32_t rows;
  int32_t vocab;   // tokens that may be chosen: the tokenizer's, <= stride
  int64_t stride;  // floats from row to row
  int32_t* ids;    // [rows]
  const SampleRow* host_params = nullptr;
};

Cost cost(const Embed& op);
Cost cost(const RmsNorm& op);
Cost cost(const QuantizeRows& op);
Cost cost(const MatMul& op);
Cost cost(const MatMulSwiGlu& op);
Cost cost(const GatherRows& op);
Cost cost(const RopeAppendKv& op);
Cost cost(const MatMulRope& op);
Cost cost(const Attention& op);
Cost cost(const SwiGlu& op);
Cost cost(const AdjustLogits& op);
Cost cost(const LogProbs& op);
Cost cost(const Sample& op);

void reference(const Embed& op);
void reference(const RmsNorm& op);
void reference(const QuantizeRows& op);
void reference(const MatMul& op);
void reference(const MatMulSwiGlu& op);
void reference(const GatherRows& op);
void reference(const RopeAppendKv& op);
void reference(const MatMulRope& op);
void reference(const Attention& op);
void reference(const SwiGlu& op);
void reference(const AdjustLogits& op);
void reference(const LogProbs& op);
void reference(const Sample& op);

// Name of an operation as metrics and tables print it.
constexpr const char* name(const Embed&) { return "embed"; }
constexpr const char* name(const RmsNorm&) { return "rms_norm"; }
constexpr const char* name(const QuantizeRows&) { return "quantize_rows"; }
constexpr const char* name(const MatMul&) { return "matmul"; }
constexpr const char* name(const MatMulSwiGlu&) { return "matmul_swiglu"; }
constexpr const char* name(const GatherRows&) { return "gather_rows"; }
constexpr const char* name(const RopeAppendKv&) { return "rope_append_kv"; }
constexpr const char* name(const MatMulRope&) { return "matmul_rope"; }
constexpr const char* name(const Attention&) { return "attention"; }
constexpr const char* name(const SwiGlu&) { return "swiglu"; }
constexpr const char* name(const AdjustLogits&) { return "adjust_logits"; }
constexpr const char* name(const LogProbs&) { return "log_probs"; }
constexpr const char* name(const Sample&) { return "sample"; }

// Operations whose arithmetic is mostly products with weights, which have a peak of their own.
constexpr bool is_product(std::string_view op) {
  return op == name(MatMul{}) || op == name(MatMulSwiGlu{}) || op == name(MatMulRope{});
}

}  // namespace headrace::kernels
