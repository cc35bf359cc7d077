// The program as a build with CUDA has it, on emulated GPUs: EMULATED_GPUS of them (2) of
// EMULATED_GPU_BYTES (1.25 GiB, of which the device leaves 0.75 free). Not HEADRACE_...: those
// variables are options, which serve's children do not inherit. Each process has GPUs of its own:
// two that use cuda:0 do not see each other there.
//
// NCCL and cuBLASLt are stand-ins: the real ones would look for real GPUs. EMULATED_NCCL names
// another file, EMULATED_CUBLASLT as well, EMULATED_NCCL_DOES what NCCL does wrong
// (tests/simt/nccl/control.h).
#include <cstdlib>

#include "deploy/cli/program.h"

namespace {

void set(const char* name, const char* from, const char* otherwise) {
  constexpr int kReplace = 1;
  const char* const given = std::getenv(from);
  setenv(name, given != nullptr ? given : otherwise, kReplace);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("HEADRACE_SIMT_STREAMS", "threaded", 1);
  set("HEADRACE_SIMT_DEVICES", "EMULATED_GPUS", "2");
  set("HEADRACE_SIMT_MEMORY", "EMULATED_GPU_BYTES", "1342177280");
  set("HEADRACE_NCCL_LIBRARY", "EMULATED_NCCL", HEADRACE_STANDIN_NCCL);
  set("HEADRACE_SIMT_NCCL", "EMULATED_NCCL_DOES", "");
  set("HEADRACE_CUBLASLT", "EMULATED_CUBLASLT", HEADRACE_STANDIN_CUBLASLT);
  return headrace::cli::run_program(argc, argv);
}
