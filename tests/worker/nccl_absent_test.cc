#include <doctest/doctest.h>

#include "worker/nccl_library.h"

// worker/nccl_absent.cc; where the build has NCCL, worker/nccl_library.cc without a library.
namespace headrace::worker {

TEST_CASE("without NCCL: a reason in words, and nothing fatal") {
  NcclLibraryOptions options;
  options.path = "no-such-library.so";
  const auto none = open_nccl(options);
  REQUIRE(!none.has_value());
  CHECK(none.error().code == Errc::kUnavailable);
  CHECK(none.error().message.find("NCCL") != std::string::npos);
}

}  // namespace headrace::worker
