// A libnccl of one rank that sends to itself, for gpu_nccl on the emulator: the stand-in's ranks
// are always two. What it needs of libcudart is the program's that opens it.
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace {

struct Send {
  const void* from = nullptr;
  size_t bytes = 0;
};
Send pending;
int communicator;  // its address is all that there is of one

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank,
                                    ncclConfig_t* config) {
  if (ranks != 1 || rank != 0 || config->blocking != 0) return ncclInvalidArgument;
  *comm = reinterpret_cast<ncclComm_t>(&communicator);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclInProgress; }
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int, ncclComm_t,
                      cudaStream_t) {
  pending = {from, count};
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int, ncclComm_t,
                      cudaStream_t stream) {
  if (count != pending.bytes) return ncclInvalidArgument;
  const cudaError_t error =
      cudaMemcpyAsync(to, pending.from, count, cudaMemcpyDeviceToDevice, stream);
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }

}  // extern "C"
