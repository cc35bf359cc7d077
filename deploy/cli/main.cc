#include <malloc.h>

#include "deploy/cli/program.h"

int main(int argc, char** argv) {
  // No fastbins: a coordinator frees very many small pieces, and glibc would join them all at once,
  // in the middle of something, which took up to 15 ms.
  mallopt(M_MXFAST, 0);
  return headrace::cli::run_program(argc, argv);
}
