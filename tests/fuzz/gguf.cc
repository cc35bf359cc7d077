// Any bytes as a model file: refused in one line, or loaded, tokenizer and weights included.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/input.h"
#include "worker/model_file.h"
#include "worker/weights.h"

namespace headrace::worker {
namespace {

constexpr uint64_t kTensorBytesMax = 1u << 20;  // all of them, before weights are packed

// In memory, yet a regular file with a name.
class File {
 public:
  File(const uint8_t* data, size_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    CHECK(fd_ >= 0);
    CHECK(write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void refused(const Status& why, const std::string& path) {
  CHECK(!why.ok());
  CHECK(why.message.find(path) != std::string::npos);
  CHECK(why.message.find('\n') == std::string::npos);
}

void load(const std::string& path, size_t size) {
  const auto gguf = GgufFile::open(path);
  if (!gguf) return refused(gguf.error(), path);
  uint64_t bytes = 0;
  for (const GgufTensor& t : gguf->tensors()) {
    CHECK(t.offset <= size && t.bytes <= size - t.offset);
    bytes += t.bytes;
  }
  const auto model = ModelFile::open(path);
  if (!model) return refused(model.error(), path);
  (void)(*model)->card({});
  if (bytes > kTensorBytesMax) return;
  const auto weights = load_weights(**model, 1);
  if (!weights) refused(weights.error(), path);
}

}  // namespace
}  // namespace headrace::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const headrace::worker::File file(data, size);
  headrace::worker::load(file.path(), size);
  return 0;
}
