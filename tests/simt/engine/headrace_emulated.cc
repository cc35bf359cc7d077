// The program as a build with CUDA has it, on emulated GPUs: HEADRACE_SIMT_DEVICES of them (2) of
// HEADRACE_SIMT_MEMORY bytes (1.25 GiB, of which the device leaves 0.75 free). Each process has its
// own: two that use cuda:0 do not see each other there.
#include <cstdlib>

#include "deploy/cli/program.h"

int main(int argc, char** argv) {
  constexpr int kKeep = 0;  // what the environment says counts
  setenv("HEADRACE_SIMT_STREAMS", "threaded", kKeep);
  setenv("HEADRACE_SIMT_DEVICES", "2", kKeep);
  setenv("HEADRACE_SIMT_MEMORY", "1342177280", kKeep);
  return headrace::cli::run_program(argc, argv);
}
