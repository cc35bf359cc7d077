#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace headrace::simt {

// One kernel launch, as the facade's `launch` makes it: arguments are copied into `thread` at that
// moment, as a graph's capture does.
struct Launch {
  const char* kernel = "";
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  size_t shared_bytes = 0;
  bool dependent = false;  // may start before the launch in front of it has ended
  // Runs one thread's body; blockIdx and threadIdx are the emulator's.
  std::function<void()> thread;
};

// Why no device runs such a launch; null: one does.
const char* refusal(const Launch& launch);

// What a kernel did wrong: "gemv_w4, block 3, thread 17, gemv_w4.cu:40: divergent __syncthreads".
struct Fault {
  std::string what;
};

// Runs every block to its end, or until the first fault (grid.cc). One at a time in a process.
std::optional<Fault> run_grid(const Launch& launch);

// The same for launches of one stream in a row, each but the first a dependent one: the order says
// when these begin. One that begins early runs up to its grid_dependency_wait while the launch in
// front, of which every block has called grid_dependency_trigger or ended, is not over.
std::optional<Fault> run_grids(std::span<const Launch> launches);

// Puts the launch on a stream of the stand-in runtime, which runs it when the stream's mode says so
// (cudart/). A fault later becomes the context's sticky cudaErrorLaunchFailure.
cudaError_t enqueue(const Launch& launch, cudaStream_t stream);

}  // namespace headrace::simt
