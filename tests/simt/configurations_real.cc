#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <cstdio>

#include "tests/simt/configurations.h"

// The same tests on the real libcudart and libnccl: main() of the `cuda` build's test binary.

namespace headrace::simt {

void each_configuration(const std::function<void()>& test) { test(); }

}  // namespace headrace::simt

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // what ctest takes for a test that could not run here
  int nccl = 0;
  int devices = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) return 1;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  std::printf("libcudart: %d devices (%s), libnccl: version %d\n", devices,
              cudaGetErrorString(error), nccl);
  if (error != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: skipped\n");
    return kSkipped;
  }
  return doctest::Context(argc, argv).run();
}
