#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "tests/simt/cudart/control.h"

// Last: its CHECK replaces ours.
#include <doctest/doctest.h>

namespace headrace::simt {

// The stand-in of libcublasLt as what is opened, and a fresh device.
class StandIn {
 public:
  explicit StandIn(const char* file = HEADRACE_STANDIN_CUBLASLT) {
    reset();
    setenv("HEADRACE_CUBLASLT", file, 1);
  }
  ~StandIn() {
    unsetenv("HEADRACE_CUBLASLT");
    unsetenv("HEADRACE_CUBLASLT_FAILS");
    reset();
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  void fail(const char* what) const { setenv("HEADRACE_CUBLASLT_FAILS", what, 1); }
  void mend() const { unsetenv("HEADRACE_CUBLASLT_FAILS"); }
  // standin_asked, standin_alive
  static int count(const char* name) {
    void* const library = dlopen(HEADRACE_STANDIN_CUBLASLT, RTLD_NOW);
    REQUIRE(library != nullptr);
    const int value = *static_cast<int*>(dlsym(library, name));
    dlclose(library);
    return value;
  }
};

}  // namespace headrace::simt
