#pragma once

// Launches of the facade's emulated body, and the same as a value for tests that have no stream.

#include <driver_types.h>

#include <tuple>
#include <utility>

#include "tests/simt/launch.h"

namespace headrace::cuda {

// Arguments are copied now; each thread gets its own copy of them, on its stack.
template <class... P, class... A>
simt::Launch make_launch(const char* name, dim3 grid, dim3 block, size_t shared_bytes,
                         void (*kernel)(P...), A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments travel as bytes");
  const std::tuple<P...> values(static_cast<P>(args)...);
  return {name, grid, block, shared_bytes, false, [kernel, values] {
            const std::tuple<P...> own = values;
            std::apply(kernel, own);
          }};
}

template <class... P, class... A>
cudaError_t launch(const char* name, cudaStream_t stream, dim3 grid, dim3 block,
                   size_t shared_bytes, void (*kernel)(P...), A&&... args) {
  return simt::enqueue(make_launch(name, grid, block, shared_bytes, kernel, args...), stream);
}

template <class... P, class... A>
cudaError_t launch_dependent(const char* name, cudaStream_t stream, dim3 grid, dim3 block,
                             size_t shared_bytes, void (*kernel)(P...), A&&... args) {
  simt::Launch dependent = make_launch(name, grid, block, shared_bytes, kernel, args...);
  dependent.dependent = true;
  return simt::enqueue(dependent, stream);
}

}  // namespace headrace::cuda
