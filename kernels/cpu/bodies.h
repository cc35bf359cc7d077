#pragma once

#include <cstddef>

#include "kernels/cpu/matmul_tiles.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace headrace::kernels {

// The bodies of every operation on the CPU, one a path; all paths give the same bits. Each is
// instantiated from kernels/cpu/<op>_body.h in a file with the flags of its instruction set.
// Call only what supported() allows. Those with `scratch` need *_scratch_bytes() of memory there,
// 64-byte aligned, whatever it holds. `rotate` and `gate` are epilogues of matmul, for a MatMulRope
// and a MatMulSwiGlu.
size_t matmul_scratch_bytes(const MatMul& op, int threads, bool pairs);
size_t attention_scratch_bytes(const Attention& op, int threads);
size_t sample_scratch_bytes(const Sample& op, int threads);

#define HEADRACE_CPU_BODIES(path)                                                   \
  void embed_##path(const Embed& op, ThreadPool& pool);                             \
  void rms_norm_##path(const RmsNorm& op, ThreadPool& pool);                        \
  void quantize_rows_##path(const QuantizeRows& op, ThreadPool& pool);              \
  void matmul_##path(const MatMul& op, ThreadPool& pool, std::byte* scratch,        \
                     const Epilogue& after);                                        \
  void rope_append_kv_##path(const RopeAppendKv& op, ThreadPool& pool);             \
  void attention_##path(const Attention& op, ThreadPool& pool, std::byte* scratch); \
  void rotate_##path(const void* op, const TileResults& results);                   \
  void gate_##path(const void* op, const TileResults& results);                     \
  void swiglu_##path(const SwiGlu& op, ThreadPool& pool);                           \
  void log_probs_##path(const LogProbs& op, ThreadPool& pool);                      \
  void sample_##path(const Sample& op, ThreadPool& pool, std::byte* scratch);

HEADRACE_CPU_BODIES(portable)
HEADRACE_CPU_BODIES(avx2)
HEADRACE_CPU_BODIES(avx512)
#undef HEADRACE_CPU_BODIES
void matmul_amx(const MatMul& op, ThreadPool& pool, std::byte* scratch, const Epilogue& after);

}  // namespace headrace::kernels
