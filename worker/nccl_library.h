#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "protocol/result.h"
#include "worker/nccl_driver.h"

namespace headrace::worker {

// The calls of NCCL that the hand-off needs, on one device, each as it is there: it returns soon,
// or hangs. All from one thread, but abort(). Bodies: nccl_library.cc, where the build has CUDA and
// nccl.h; what the tests make of it.
class NcclLibrary {
 public:
  using Comm = void*;  // a communicator
  using Mark = void*;  // a place in the device's order
  enum class Step : uint8_t { kPending, kDone };

  virtual ~NcclLibrary() = default;
  virtual uint32_t version() const = 0;  // major * 10000 + minor * 100 + patch
  virtual Result<NcclId> mint() = 0;
  // Begins to open a communicator of two.
  virtual Result<Comm> begin(const NcclId& id, int rank) = 0;
  // Whether the newest call on the communicator is through. The next may follow only then. Not ok:
  // the communicator has failed.
  virtual Result<Step> poll(Comm comm) = 0;
  // Puts a send to, or a receive from, the other rank behind what the device has to do.
  virtual Status send(Comm comm, const std::byte* from, size_t bytes) = 0;
  virtual Status receive(Comm comm, std::byte* to, size_t bytes) = 0;
  // Behind what was put there so far; and whether the device has come to it, which ends the mark.
  virtual Result<Mark> mark() = 0;
  virtual Result<Step> reached(Mark mark) = 0;
  virtual void drop(Mark mark) = 0;
  // Ends the communicator at this end, with what is under way; from any thread, while no other call
  // on it is.
  virtual Status abort(Comm comm) = 0;
};

struct NcclLibraryOptions {
  std::string path;       // empty: HEADRACE_NCCL_LIBRARY, else libnccl.so.2
  int ordinal = 0;        // the device
  std::string interface;  // that NCCL may use, "eth1"; empty: all
  int blocks_max = 8;     // of the device that one communicator takes; its memory grows with them
};

// Opens the library. Without it, or without one of its functions: why, in words; tcp does its work.
// Sets what the process's environment tells NCCL, so before other threads read that.
Result<std::unique_ptr<NcclLibrary>> open_nccl(const NcclLibraryOptions& options);

}  // namespace headrace::worker
