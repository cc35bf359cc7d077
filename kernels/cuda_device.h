#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

// A GPU as a Device. Linked with kernels/cuda in builds with CUDA; in others cuda_absent.cc stands
// here and says so.

namespace headrace::kernels {

// Left free on a GPU for its driver, the graphs and others.
constexpr uint64_t kCudaReserve = uint64_t{768} << 20;

struct CudaOptions {
  int ordinal = 0;                // as the driver numbers them
  KvType kv_type = KvType::kF16;  // all but kF32
  bool graphs = true;             // decode steps are recorded and repeated
  bool library = false;           // products of many rows by cuBLASLt (cuda/library_products.h)
};

bool cuda_is_built();
// GPUs that this process may use. None: `why` tells, in a few words.
int cuda_devices(std::string* why);

// A GPU as the driver describes it; asking takes no memory of it.
struct GpuInfo {
  int ordinal = 0;
  std::string name;     // "NVIDIA H100 80GB HBM3"
  std::string id;       // 32 hexadecimal digits, the same whichever others are seen
  uint64_t memory = 0;  // bytes, whoever has them
  int capability = 0;   // 90 for sm_90
};
// All of cuda_devices().
std::vector<GpuInfo> cuda_gpus(std::string* why);

// Throws DeviceError with the reason.
//
// bf16 activations, f32 residual stream; KV by rows. Steps in which each row is of another sequence
// are padded to a few sizes (`padded`) and run as CUDA graphs, recorded when a size is first seen.
// Copies for hand-offs have a stream of their own. A failed launch, memory that is short in the
// middle of a step, a device that has gone or does not finish within 60 s: DeviceError, now and
// ever after.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

}  // namespace headrace::kernels
