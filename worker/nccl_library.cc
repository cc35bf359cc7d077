#include "worker/nccl_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

constexpr uint32_t kVersionMin = 22703;  // older ones are not known to abort what does not block

// What is taken out of the library, by the header's own types.
struct Functions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
};

Status cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  return error(Errc::kInternal, std::string(what) + ": " + cudaGetErrorString(code));
}

class Library final : public NcclLibrary {
 public:
  Library(const Functions& functions, uint32_t version, int ordinal, int blocks_max)
      : f_(functions), version_(version), ordinal_(ordinal), blocks_(blocks_max) {}
  // The library stays: its threads may run on.
  ~Library() override {
    if (stream_) cudaStreamDestroy(stream_);
  }

  uint32_t version() const override { return version_; }

  Result<NcclId> mint() override {
    ncclUniqueId id;
    if (const Status wrong = nccl(f_.get_unique_id(&id), "an id"); !wrong.ok()) return wrong;
    NcclId bytes;
    std::memcpy(bytes.data(), &id, sizeof id);
    return bytes;
  }

  Result<Comm> begin(const NcclId& bytes, int rank) override {
    if (const Status wrong = use_device(); !wrong.ok()) return wrong;
    ncclUniqueId id;
    std::memcpy(&id, bytes.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = blocks_;
    ncclComm_t comm = nullptr;
    if (const Status wrong = nccl(f_.init(&comm, 2, id, rank, &config), "init"); !wrong.ok()) {
      return wrong;
    }
    return Comm(comm);
  }

  Result<Step> poll(Comm comm) override {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = f_.async_error(static_cast<ncclComm_t>(comm), &state);
    if (const Status wrong = nccl(asked, "poll"); !wrong.ok()) return wrong;
    if (const Status wrong = nccl(state, "the communicator"); !wrong.ok()) return wrong;
    return state == ncclInProgress ? Step::kPending : Step::kDone;
  }

  Status send(Comm comm, const std::byte* from, size_t bytes) override {
    if (Status wrong = use_device(); !wrong.ok()) return wrong;
    constexpr int kDecode = 1;
    return nccl(f_.send(from, bytes, ncclUint8, kDecode, static_cast<ncclComm_t>(comm), stream_),
                "send");
  }
  Status receive(Comm comm, std::byte* to, size_t bytes) override {
    if (Status wrong = use_device(); !wrong.ok()) return wrong;
    constexpr int kPrefill = 0;
    return nccl(f_.receive(to, bytes, ncclUint8, kPrefill, static_cast<ncclComm_t>(comm), stream_),
                "receive");
  }

  Result<Mark> mark() override {
    if (const Status wrong = use_device(); !wrong.ok()) return wrong;
    cudaEvent_t event = nullptr;
    Status wrong = cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    if (wrong.ok()) wrong = cuda(cudaEventRecord(event, stream_), "an event");
    if (!wrong.ok()) return wrong;
    return Mark(event);
  }

  Result<Step> reached(Mark mark) override {
    const auto event = static_cast<cudaEvent_t>(mark);
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaErrorNotReady) return Step::kPending;
    cudaEventDestroy(event);
    if (const Status wrong = cuda(state, "the device"); !wrong.ok()) return wrong;
    return Step::kDone;
  }
  void drop(Mark mark) override { cudaEventDestroy(static_cast<cudaEvent_t>(mark)); }

  Status abort(Comm comm) override {
    if (Status wrong = cuda(cudaSetDevice(ordinal_), "the device"); !wrong.ok()) return wrong;
    return nccl(f_.abort(static_cast<ncclComm_t>(comm)), "abort");
  }

 private:
  Status nccl(ncclResult_t code, const char* what) const {
    if (code == ncclSuccess || code == ncclInProgress) return {};
    return error(Errc::kInternal, std::string("NCCL, ") + what + ": " + f_.error_string(code));
  }
  // One stream for all: a device runs what is launched in the order of the launches.
  Status use_device() {
    if (Status wrong = cuda(cudaSetDevice(ordinal_), "the device"); !wrong.ok()) return wrong;
    if (stream_) return {};
    return cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }

  const Functions f_;
  const uint32_t version_;
  const int ordinal_;
  const int blocks_;
  cudaStream_t stream_ = nullptr;
};

template <class F>
bool find(void* handle, const char* name, F* out, std::string* missing) {
  *out = reinterpret_cast<F>(dlsym(handle, name));
  if (!*out && missing->empty()) *missing = name;
  return *out != nullptr;
}

std::string path_of(const NcclLibraryOptions& options) {
  if (!options.path.empty()) return options.path;
  const char* path = std::getenv("HEADRACE_NCCL_LIBRARY");
  return path && *path ? path : "libnccl.so.2";
}

// RAS would listen for anybody. The rest stays with whoever has set it.
void pin_environment(const NcclLibraryOptions& options) {
  setenv("NCCL_RAS_ENABLE", "0", 1);
  setenv("NCCL_DEBUG", "WARN", 0);
  if (!options.interface.empty()) setenv("NCCL_SOCKET_IFNAME", options.interface.c_str(), 0);
}

}  // namespace

Result<std::unique_ptr<NcclLibrary>> open_nccl(const NcclLibraryOptions& options) {
  const std::string path = path_of(options);
  pin_environment(options);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    return error(Errc::kUnavailable, "no NCCL: " + std::string(why ? why : path));
  }
  Functions f;
  std::string missing;
  find(handle, "ncclGetVersion", &f.get_version, &missing);
  find(handle, "ncclGetUniqueId", &f.get_unique_id, &missing);
  find(handle, "ncclCommInitRankConfig", &f.init, &missing);
  find(handle, "ncclCommGetAsyncError", &f.async_error, &missing);
  find(handle, "ncclSend", &f.send, &missing);
  find(handle, "ncclRecv", &f.receive, &missing);
  find(handle, "ncclCommAbort", &f.abort, &missing);
  find(handle, "ncclGetErrorString", &f.error_string, &missing);
  int version = 0;
  std::string no;
  if (!missing.empty()) {
    no = path + " has no " + missing;
  } else if (f.get_version(&version) != ncclSuccess || uint32_t(version) < kVersionMin) {
    no = path + " is version " + std::to_string(version) + ", needed is " +
         std::to_string(kVersionMin) + " or newer";
  }
  if (!no.empty()) {
    dlclose(handle);
    return error(Errc::kUnavailable, "no NCCL: " + no);
  }
  return std::unique_ptr<NcclLibrary>(
      new Library(f, uint32_t(version), options.ordinal, options.blocks_max));
}

}  // namespace headrace::worker
