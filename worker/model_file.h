#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "protocol/model_card.h"
#include "protocol/result.h"
#include "worker/architecture.h"
#include "worker/gguf.h"

namespace headrace::worker {

// How a worker runs a model: all that the card depends on beside the file.
struct CardOptions {
  uint32_t block_tokens = 32;
  kernels::KvType kv_type = kernels::KvType::kF16;
  kernels::KvOrder kv_order = kernels::KvOrder::kLanes;
  kernels::Tiling tiling = kernels::Tiling::kLanes;
  // Most products are of int8 with int8, so that the integer peak is the compute wall.
  bool quantizes = true;
  std::string numerics = "cpu-int8/32 slice" + std::to_string(kernels::kAttentionSlice);

  static CardOptions of(const kernels::Device& device, uint32_t block_tokens);
};

// A model opened by its path: structure checked, configuration and tokenizer read, weights still on
// disk. Immutable and shared by those who need it.
class ModelFile {
 public:
  // Knows a file by its first bytes, whatever its name. Every refusal is one line with the path.
  // Hashes the whole file: `progress` gets the share done, 0..1.
  static Result<std::shared_ptr<const ModelFile>> open(
      const std::string& path, const std::function<void(double)>& progress = {});

  const GgufFile& gguf() const { return gguf_; }
  const LlamaConfig& config() const { return config_; }
  const TokenizerData& tokenizer() const { return tokenizer_; }
  // Tokens that may be given and sampled: at most config().vocab.
  uint32_t known_tokens() const { return static_cast<uint32_t>(tokenizer_.tokens.size()); }

  ModelCard card(const CardOptions& options) const;
  kernels::KvLayout kv_layout(const CardOptions& options) const;

 private:
  ModelFile(GgufFile gguf, LlamaConfig config, TokenizerData tokenizer)
      : gguf_(std::move(gguf)), config_(std::move(config)), tokenizer_(std::move(tokenizer)) {}
  ModelCost cost(const CardOptions& options) const;

  GgufFile gguf_;
  LlamaConfig config_;
  TokenizerData tokenizer_;
  Digest weights_digest_;
  Digest tokenizer_digest_;
};

}  // namespace headrace::worker
