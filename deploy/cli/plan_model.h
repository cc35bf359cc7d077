#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cost.h"
#include "kernels/kv.h"
#include "kernels/matrix.h"
#include "protocol/result.h"

namespace headrace::cli {

// Types of a layer's matrices as a file has them.
struct PlanLayer {
  kernels::WeightType q, k, v, out, gate, up, down;
  bool operator==(const PlanLayer&) const = default;
};

// The geometry of a Llama-shaped model: all that bytes and operations depend on.
struct PlanModel {
  std::string name;
  int32_t layers = 0;
  int32_t dim = 0;
  int32_t ffn = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rotated = 0;
  int32_t vocab = 0;
  int32_t context = 0;
  bool tied = false;  // the embedding is the output matrix too

  // As stored; no layers if the model is a shape without a file.
  std::vector<PlanLayer> file_layers;
  kernels::WeightType file_embedding{};
  kernels::WeightType file_output{};

  int32_t q_rows() const { return heads * head_dim; }
  int32_t qkv_rows() const { return (heads + 2 * kv_heads) * head_dim; }
};

// "1b", "8b", "70b": Llama 3.2 1B, Llama 3.1 8B and 70B.
inline constexpr std::string_view kPlanShapes[] = {"1b", "8b", "70b"};
std::optional<PlanModel> plan_shape(std::string_view name);
// Reads the head of a GGUF file alone. A refusal is one line with the path.
Result<PlanModel> plan_model_of(const std::string& path);

enum class PlanWeights : uint8_t { kFile, kW4, kW8, kBf16 };
const char* name(PlanWeights weights);  // "file", "w4", "w8", "bf16"

constexpr int32_t kPlanBlockTokens = 32;

// How weights and KV are stored.
struct PlanFormat {
  PlanWeights weights = PlanWeights::kW4;
  std::optional<PlanWeights> output = std::nullopt;  // of the output matrix; none: as the others
  // Weights to a scale. The engine's formats have 32; a larger one shows what it would buy.
  int32_t group = kernels::kGroup;
  kernels::KvType kv = kernels::KvType::kF16;
};

// The rows of a step: one of each sequence that decodes, and a run of one prompt's tokens.
struct PlanStep {
  int32_t batch = 0;    // sequences that decode
  int32_t context = 0;  // keys that each of them looks at, its own among them
  int32_t chunk = 0;    // tokens of a prompt
  int32_t cached = 0;   // tokens of it computed before
  int32_t logits = 0;   // rows that go through the output matrix
};

struct PlanOp {
  const char* name;
  kernels::Cost cost;  // of one
  int32_t times;       // a step
};

// The operations of a step as a GPU runs it, with their own costs; there are no data behind them.
std::vector<PlanOp> plan_ops(const PlanModel& model, const PlanFormat& format,
                             const PlanStep& step);

// All weights, as they stay in memory.
uint64_t plan_weight_bytes(const PlanModel& model, const PlanFormat& format);
// Activations of steps of at most so many rows, `logits` of them with logits.
uint64_t plan_activation_bytes(const PlanModel& model, int32_t rows, int32_t logits);
kernels::KvLayout plan_kv_layout(const PlanModel& model, kernels::KvType type);

}  // namespace headrace::cli
