#include "worker/nccl_library.h"

namespace headrace::worker {

Result<std::unique_ptr<NcclLibrary>> open_nccl(const NcclLibraryOptions&) {
  return error(Errc::kUnavailable,
               "this build is without NCCL (preset cuda, where nccl.h is, has it)");
}

}  // namespace headrace::worker
