#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/matrix.h"
#include "protocol/result.h"
#include "worker/model_engine.h"

namespace headrace::cli {

// A Llama-shaped model of made-up weights: by default the shape of one of a billion.
struct DemoShape {
  uint32_t layers = 16;
  uint32_t dim = 2048;
  uint32_t ffn = 8192;
  uint32_t heads = 32;
  uint32_t kv_heads = 8;
  uint32_t head_dim = 64;
  uint32_t vocab = 49152;  // the embedding is the output matrix too
  uint32_t context = 8448;
  kernels::SourceType type = kernels::SourceType::kQ4_0;  // kQ4_0, kQ8_0 or kBf16, of all matrices

  uint64_t weights() const;       // matrices' elements
  uint64_t matrix_bytes() const;  // as stored
};

// Such a model as a GGUF file that lies in memory alone: no folder has it, and it is gone with the
// process, however that ends. The same bytes everywhere. Move-only.
class DemoModel {
 public:
  // kOverloaded, with what is missing, where memory cannot be had.
  static Result<DemoModel> make(const DemoShape& shape);
  DemoModel(DemoModel&& o) noexcept;
  DemoModel& operator=(DemoModel&&) = delete;
  ~DemoModel();

  std::string path() const;  // for this process
  uint64_t bytes() const { return bytes_; }
  // The contents go, the path stays: for when the weights have been packed elsewhere.
  void empty();

 private:
  explicit DemoModel(int fd) : fd_(fd) {}
  int fd_;
  uint64_t bytes_ = 0;
};

inline constexpr uint32_t kDemoBlockTokens = 32;  // of KV

// What loading and measuring one takes at most: the packed weights and beside them the file, or as
// many bytes of weights and KV that are swept to see what memory gives; working memory.
uint64_t demo_memory(const DemoShape& shape, uint32_t blocks);

// An engine of made-up weights on a CPU path ("cpu:avx2"), with so many KV blocks.
// Refused, with both figures, where less memory is available than demo_memory().
Result<std::unique_ptr<worker::ModelEngine>> make_demo_engine(const DemoShape& shape,
                                                              const std::string& device,
                                                              int threads, uint32_t blocks);

}  // namespace headrace::cli
