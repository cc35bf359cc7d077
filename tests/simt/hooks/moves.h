#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/cost.h"
#include "tests/simt/hooks/access_log.h"

// A kernel's byte test in a few lines:
//
//   const Accesses accesses = record_once([&](cudaStream_t stream) { return enqueue(op, ...); });
//   check_moves(accesses, {.weights = {weights.get()}, .kv = {pages.get()}}, kernels::cost(op));
//   check_lines(accesses, "matmul.cu:");

namespace headrace::simt {

// What `enqueue` puts on a stream, until it is over. Copies happen where they are asked for, so
// that each counts at its own line.
Accesses record_once(const std::function<cudaError_t(cudaStream_t)>& enqueue);

// What lies where: an address in each allocation. What is not named is an activation or a table.
struct Kinds {
  std::vector<const void*> weights{};
  std::vector<const void*> kv{};
  // Small weights that many blocks read, as a norm's gain: the L2 has them after the first.
  std::vector<const void*> cached_weights{};
};

// The bytes moved as cost() counts them: weights and KV each time that a warp asks for them, since
// nothing else would keep a kernel from reading them twice; all else once, since the L2 has it the
// second time.
kernels::Cost moved(const Accesses& accesses, const Kinds& kinds);

// moved() is what cost() says, kind by kind, but for 2 %.
void check_moves(const Accesses& accesses, const Kinds& kinds, const kernels::Cost& cost);

// Every line is one of `file` ("copy.cu:"), takes as few sectors of global memory and as few passes
// over the banks as there can be. Lines that lie in `cold` ("sample.cu:73") may take more.
void check_lines(const Accesses& accesses, const std::string& file,
                 const std::vector<std::string>& cold = {});

// "copy.cu:23 global read: 96 warp accesses, ...", a line for each, for a failure's text.
std::string describe(const LineUse& use);

}  // namespace headrace::simt
