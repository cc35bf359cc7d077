#include "worker/model_file.h"

#include <xxhash.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "protocol/check.h"
#include "protocol/codec.h"
#include "worker/tokenizer_source.h"

namespace headrace::worker {
namespace {

constexpr size_t kNameBytesMax = 256;  // of general.name; a longer one is no name

std::string stem(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  const size_t dot = file.find_last_of('.');
  return dot == std::string::npos || dot == 0 ? file : file.substr(0, dot);
}

Digest digest(const Bytes& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return Digest{.hi = hash.high64, .lo = hash.low64};
}

}  // namespace

Result<std::shared_ptr<const ModelFile>> ModelFile::open(
    const std::string& path, const std::function<void(double)>& progress) {
  Result<GgufFile> gguf = GgufFile::open(path);
  if (!gguf) return std::move(gguf).error();
  Result<LlamaConfig> config = read_config(*gguf);
  if (!config) return std::move(config).error();
  Result<TokenizerData> tokenizer = read_tokenizer(*gguf, config->vocab);
  if (!tokenizer) return std::move(tokenizer).error();
  const auto total = static_cast<double>(gguf->file().size());
  const Result<Digest> weights = gguf->file().digest([&](uint64_t bytes) {
    if (progress) progress(static_cast<double>(bytes) / total);
  });
  if (!weights) return weights.error();
  if (Status s = gguf->file().unchanged(); !s.ok()) return s;
  std::shared_ptr<ModelFile> model(
      new ModelFile(std::move(*gguf), std::move(*config), std::move(*tokenizer)));
  model->weights_digest_ = *weights;
  model->tokenizer_digest_ = digest(encode(model->tokenizer_));
  return std::shared_ptr<const ModelFile>(std::move(model));
}

CardOptions CardOptions::of(const kernels::Device& device, uint32_t block_tokens) {
  return {.block_tokens = block_tokens,
          .kv_type = device.kv_type(),
          .kv_order = device.kv_order(),
          .tiling = device.tiling(),
          .quantizes = device.activation(kernels::WeightType::kW4) == kernels::Activation::kBlocks,
          .numerics = device.numerics()};
}

kernels::KvLayout ModelFile::kv_layout(const CardOptions& options) const {
  return {.type = options.kv_type,
          .layers = static_cast<int32_t>(config_.layers),
          .kv_heads = static_cast<int32_t>(config_.kv_heads),
          .head_dim = static_cast<int32_t>(config_.head_dim),
          .block_tokens = static_cast<int32_t>(options.block_tokens),
          .order = options.kv_order};
}

// Sums of the operations' own costs for one row, without any weights in memory.
ModelCost ModelFile::cost(const CardOptions& options) const {
  ModelCost out;
  const auto matmul = [&](const std::string& name) {
    const GgufTensor* t = gguf_.tensor(name);
    CHECK(t != nullptr);
    kernels::MatMul op{};
    op.w = {.type = kernels::packed_type(t->type),
            .rows = static_cast<int32_t>(t->rows()),
            .cols = static_cast<int32_t>(t->cols()),
            .data = nullptr,
            .tiling = options.tiling};
    op.rows = 1;
    op.stride = op.w.rows;
    return std::pair(kernels::cost(op), kernels::quantized(op.w.type));
  };
  uint64_t quantized_flops = 0;
  for (uint32_t layer = 0; layer < config_.layers; layer++)
    for (const auto* part :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
      const auto [c, quantized] = matmul("blk." + std::to_string(layer) + "." + part + ".weight");
      out.weight_bytes += c.weight_bytes;
      out.flops_per_token += c.flops;
      if (quantized) quantized_flops += c.flops;
    }
  const auto head = matmul(config_.tied ? "token_embd.weight" : "output.weight").first;
  out.weight_bytes += head.weight_bytes;
  out.head_flops = head.flops;
  out.quantized = options.quantizes && 2 * quantized_flops > out.flops_per_token;
  out.kv_token_bytes = kv_layout(options).token_bytes();
  const auto attention = [&](int32_t position) {
    const kernels::StepRow row{.blocks = nullptr, .position = position};
    kernels::Attention op{};
    op.step = &row;
    op.rows = 1;
    op.heads = static_cast<int32_t>(config_.heads);
    op.kv.layout = kv_layout(options);
    return kernels::cost(op).flops;
  };
  out.attention_flops = (attention(1) - attention(0)) * config_.layers;
  return out;
}

ModelCard ModelFile::card(const CardOptions& options) const {
  const LlamaConfig& c = config_;
  ModelCard card;
  const Result<std::string> title = gguf_.text("general.name");
  const bool titled = title && !title->empty() && title->size() <= kNameBytesMax;
  card.name = titled ? *title : stem(gguf_.file().path());
  card.architecture = c.architecture;
  card.weights = weights_digest_;
  card.tokenizer = tokenizer_digest_;
  card.layers = c.layers;
  card.dim = c.dim;
  card.ffn = c.ffn;
  card.heads = c.heads;
  card.kv_heads = c.kv_heads;
  card.head_dim = c.head_dim;
  card.vocab = c.vocab;
  card.context = c.context;
  card.block_tokens = options.block_tokens;
  card.block_bytes = kv_layout(options).block_bytes();
  const bool lanes = options.kv_order == kernels::KvOrder::kLanes;
  card.kv_layout = std::string(kernels::name(options.kv_type)) + " block[layer][head][K " +
                   (lanes ? "d,t" : "t,d") + "|V t,d" +
                   (kernels::scaled(options.kv_type) ? "|f16 scales]" : "]");
  card.numerics = options.numerics;
  card.cost = cost(options);
  return card;
}

}  // namespace headrace::worker
