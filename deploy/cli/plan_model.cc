#include "deploy/cli/plan_model.h"

#include <algorithm>

#include "kernels/ops.h"
#include "worker/architecture.h"
#include "worker/gguf.h"

namespace headrace::cli {

namespace {

using kernels::Matrix;
using kernels::WeightType;

WeightType weight_type(PlanWeights weights) {
  switch (weights) {
    case PlanWeights::kW4:
      return WeightType::kW4;
    case PlanWeights::kW8:
      return WeightType::kW8;
    default:
      return WeightType::kBf16;
  }
}

PlanLayer uniform(WeightType t) { return {t, t, t, t, t, t, t}; }

Matrix matrix(WeightType type, int32_t rows, int32_t cols, bool paired = false) {
  return {.type = type,
          .rows = rows,
          .cols = cols,
          .data = nullptr,
          .tiling = kernels::Tiling::kFragments,
          .paired = paired};
}

// A packed matrix has a scale (kW4Min: two) of 16 bits for each 32 weights: 1/9, 1/17 or 1/5 of its
// bytes. With larger groups there are fewer.
uint64_t regrouped(uint64_t bytes, WeightType type, int32_t group) {
  if (!kernels::quantized(type)) return bytes;
  const uint64_t part = type == WeightType::kW4 ? 9 : type == WeightType::kW8 ? 17 : 5;
  const auto size = static_cast<uint64_t>(group);
  return bytes - bytes / part * (size - kernels::kGroup) / size;
}

// Collects the operations of one step. Costs look at whether a pointer is there, never behind it.
class Operations {
 public:
  Operations(const PlanModel& model, const PlanFormat& format, const PlanStep& step)
      : model_(model), format_(format), layout_(plan_kv_layout(model, format.kv)), step_(step) {
    tables_.resize(static_cast<size_t>(step.batch) + 1);
    for (int32_t i = 0; i < step.batch; ++i)
      rows_.push_back({.blocks = &tables_[static_cast<size_t>(i)], .position = step.context - 1});
    for (int32_t i = 0; i < step.chunk; ++i)
      rows_.push_back({.blocks = &tables_.back(), .position = step.cached + i});
  }

  void embed(WeightType type) {
    add(kernels::Embed{.table = matrix(type, model_.vocab, model_.dim),
                       .ids = nullptr,
                       .rows = rows(),
                       .y = nullptr},
        type, 1);
  }
  // The same in all layers.
  void attend() {
    const kernels::KvPool pool{.layout = layout_, .base = nullptr};
    add(kernels::RopeAppendKv{.qkv = nullptr,
                              .step = nullptr,
                              .rope = nullptr,
                              .rows = rows(),
                              .heads = model_.heads,
                              .rotated = model_.rotated,
                              .layer = 0,
                              .kv = pool},
        WeightType::kF32, model_.layers);
    add(kernels::Attention{.qkv = nullptr,
                           .step = nullptr,
                           .rows = rows(),
                           .heads = model_.heads,
                           .layer = 0,
                           .kv = pool,
                           .y = output(),
                           .host_step = rows_.data()},
        WeightType::kF32, model_.layers);
  }
  // All of a layer but that.
  void layer(const PlanLayer& t, int32_t times) {
    norm(rows(), times);
    if (t.q == t.k && t.k == t.v) {
      product(matrix(t.q, model_.qkv_rows(), model_.dim), rows(), false, times);
    } else {
      const int32_t kv_rows = model_.kv_heads * model_.head_dim;
      product(matrix(t.q, model_.q_rows(), model_.dim), rows(), false, times);
      product(matrix(t.k, kv_rows, model_.dim), rows(), false, times);
      product(matrix(t.v, kv_rows, model_.dim), rows(), false, times);
    }
    product(matrix(t.out, model_.dim, model_.q_rows()), rows(), true, times);
    norm(rows(), times);
    feed_forward(t, times);
    product(matrix(t.down, model_.dim, model_.ffn), rows(), true, times);
  }
  void sample(WeightType type) {
    if (step_.logits == 0) return;
    const int32_t n = step_.logits;
    add(kernels::GatherRows{
        .x = nullptr, .index = nullptr, .rows = n, .dim = model_.dim, .y = nullptr});
    norm(n, 1);
    product(matrix(type, model_.vocab, model_.dim), n, false, 1);
    const std::vector<kernels::SampleRow> greedy(static_cast<size_t>(n));
    add(kernels::Sample{.logits = nullptr,
                        .params = greedy.data(),
                        .rows = n,
                        .vocab = model_.vocab,
                        .stride = model_.vocab,
                        .ids = nullptr});
  }
  std::vector<PlanOp> take() { return std::move(ops_); }

 private:
  int32_t rows() const { return static_cast<int32_t>(rows_.size()); }
  kernels::Rows input() const { return {.bf16 = &bf16_, .sums = &sum_}; }
  kernels::RowsOut output() { return {.bf16 = &bf16_, .sums = &sum_}; }

  template <class Op>
  void add(const Op& op, WeightType type = WeightType::kF32, int32_t times = 1) {
    kernels::Cost c = kernels::cost(op);
    c.weight_bytes = regrouped(c.weight_bytes, type, format_.group);
    ops_.push_back({kernels::name(op), c, times});
  }
  void norm(int32_t rows, int32_t times) {
    add(kernels::RmsNorm{.x = nullptr,
                         .gain = nullptr,
                         .rows = rows,
                         .dim = model_.dim,
                         .eps = 0,
                         .y = output()},
        WeightType::kF32, times);
  }
  void product(const Matrix& w, int32_t rows, bool residual, int32_t times) {
    add(
        kernels::MatMul{
            .w = w, .x = input(), .rows = rows, .y = nullptr, .stride = w.rows, .add = residual},
        w.type, times);
  }
  // Gate and up stand in one matrix where their types agree.
  void feed_forward(const PlanLayer& t, int32_t times) {
    if (t.gate == t.up) {
      add(kernels::MatMulSwiGlu{.w = matrix(t.gate, 2 * model_.ffn, model_.dim, true),
                                .x = input(),
                                .rows = rows(),
                                .y = output()},
          t.gate, times);
      return;
    }
    product(matrix(t.gate, model_.ffn, model_.dim), rows(), false, times);
    product(matrix(t.up, model_.ffn, model_.dim), rows(), false, times);
    add(kernels::SwiGlu{.x = nullptr, .rows = rows(), .ffn = model_.ffn, .y = output()},
        WeightType::kF32, times);
  }

  const PlanModel& model_;
  const PlanFormat& format_;
  const kernels::KvLayout layout_;
  const PlanStep& step_;
  std::vector<uint32_t> tables_;  // one address a sequence
  std::vector<kernels::StepRow> rows_;
  uint16_t bf16_ = 0;
  float sum_ = 0;
  std::vector<PlanOp> ops_;
};

// What the layers are made of under a format: each kind of layer, and how many of it.
std::vector<std::pair<PlanLayer, int32_t>> layer_kinds(const PlanModel& model,
                                                       const PlanFormat& format) {
  if (format.weights != PlanWeights::kFile)
    return {{uniform(weight_type(format.weights)), model.layers}};
  std::vector<std::pair<PlanLayer, int32_t>> kinds;
  for (const PlanLayer& layer : model.file_layers) {
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const auto& kind) { return kind.first == layer; });
    if (same == kinds.end())
      kinds.emplace_back(layer, 1);
    else
      ++same->second;
  }
  return kinds;
}

WeightType output_type(const PlanModel& model, const PlanFormat& format) {
  const PlanWeights weights = format.output.value_or(format.weights);
  return weights == PlanWeights::kFile ? model.file_output : weight_type(weights);
}

WeightType embedding_type(const PlanModel& model, const PlanFormat& format) {
  if (model.tied) return output_type(model, format);
  return format.weights == PlanWeights::kFile ? model.file_embedding : weight_type(format.weights);
}

}  // namespace

const char* name(PlanWeights weights) {
  switch (weights) {
    case PlanWeights::kFile:
      return "file";
    case PlanWeights::kW4:
      return "w4";
    case PlanWeights::kW8:
      return "w8";
    case PlanWeights::kBf16:
      break;
  }
  return "bf16";
}

std::optional<PlanModel> plan_shape(std::string_view name) {
  PlanModel m;
  m.kv_heads = 8;
  m.vocab = 128'256;
  m.context = 131'072;
  if (name == "1b") {
    m.name = "Llama 3.2 1B";
    m.layers = 16, m.dim = 2048, m.ffn = 8192, m.heads = 32, m.head_dim = 64;
    m.tied = true;
  } else if (name == "8b") {
    m.name = "Llama 3.1 8B";
    m.layers = 32, m.dim = 4096, m.ffn = 14'336, m.heads = 32, m.head_dim = 128;
  } else if (name == "70b") {
    m.name = "Llama 3.1 70B";
    m.layers = 80, m.dim = 8192, m.ffn = 28'672, m.heads = 64, m.head_dim = 128;
  } else {
    return std::nullopt;
  }
  m.rotated = m.head_dim;
  return m;
}

Result<PlanModel> plan_model_of(const std::string& path) {
  const auto file = worker::GgufFile::open(path);
  if (!file) return file.error();
  const auto config = worker::read_config(*file);
  if (!config) return config.error();
  const auto number = [](uint32_t n) { return static_cast<int32_t>(n); };  // limits: architecture.h
  const auto type = [&](const std::string& tensor) {
    return kernels::packed_type(file->tensor(tensor)->type);
  };
  PlanModel m;
  const auto title = file->text("general.name");
  m.name = title && !title->empty() ? *title : path;
  m.layers = number(config->layers);
  m.dim = number(config->dim);
  m.ffn = number(config->ffn);
  m.heads = number(config->heads);
  m.kv_heads = number(config->kv_heads);
  m.head_dim = number(config->head_dim);
  m.rotated = number(config->rotated);
  m.vocab = number(config->vocab);
  m.context = number(config->context);
  m.tied = config->tied;
  for (int32_t i = 0; i < m.layers; ++i) {
    const std::string at = "blk." + std::to_string(i) + ".";
    m.file_layers.push_back({.q = type(at + "attn_q.weight"),
                             .k = type(at + "attn_k.weight"),
                             .v = type(at + "attn_v.weight"),
                             .out = type(at + "attn_output.weight"),
                             .gate = type(at + "ffn_gate.weight"),
                             .up = type(at + "ffn_up.weight"),
                             .down = type(at + "ffn_down.weight")});
  }
  m.file_embedding = type("token_embd.weight");
  m.file_output = m.tied ? m.file_embedding : type("output.weight");
  return m;
}

std::vector<PlanOp> plan_ops(const PlanModel& model, const PlanFormat& format,
                             const PlanStep& step) {
  Operations ops(model, format, step);
  ops.embed(embedding_type(model, format));
  ops.attend();
  for (const auto& [layer, times] : layer_kinds(model, format)) ops.layer(layer, times);
  ops.sample(output_type(model, format));
  return ops.take();
}

uint64_t plan_weight_bytes(const PlanModel& model, const PlanFormat& format) {
  uint64_t bytes = 0;
  // A step of one row reads all matrices but the embedding, of which it reads that row.
  const auto ops =
      plan_ops(model, format, {.batch = 1, .context = 1, .chunk = 0, .cached = 0, .logits = 1});
  for (const PlanOp& op : ops)
    if (std::string_view(op.name) != kernels::name(kernels::Embed{}))
      bytes += op.cost.weight_bytes * static_cast<uint64_t>(op.times);
  if (!model.tied) {
    const WeightType type = embedding_type(model, format);
    bytes += regrouped(matrix(type, model.vocab, model.dim).bytes(), type, format.group);
  }
  return bytes;
}

uint64_t plan_activation_bytes(const PlanModel& model, int32_t rows, int32_t logits) {
  const auto n = static_cast<uint64_t>(rows);
  const auto bf16_row = [](int32_t width) {  // values and a sum of each 32
    const auto pitch = static_cast<uint64_t>(kernels::bf16_pitch(width));
    return 2 * pitch + pitch / 8;
  };
  const auto f32_row = static_cast<uint64_t>(model.dim + model.qkv_rows()) * sizeof(float);
  const auto logit_row = static_cast<uint64_t>(model.dim + model.vocab) * sizeof(float);
  return n * (f32_row + bf16_row(std::max(model.dim, model.q_rows())) + bf16_row(model.ffn)) +
         static_cast<uint64_t>(logits) * logit_row;
}

kernels::KvLayout plan_kv_layout(const PlanModel& model, kernels::KvType type) {
  return {.type = type,
          .layers = model.layers,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .block_tokens = kPlanBlockTokens,
          .order = kernels::KvOrder::kRows};
}

}  // namespace headrace::cli
