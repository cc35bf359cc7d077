#include "worker/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/rope_table.h"

namespace headrace::worker {
namespace {

using kernels::Buffer;

// Rows that go through the output matrix together; more are cut into several passes, which read the
// output matrix again but bound the memory for logits.
constexpr uint32_t kLogitRows = 64;

Buffer floats(uint64_t rows, uint64_t width) { return Buffer(rows * width * sizeof(float)); }

Buffer blocks(uint64_t rows, uint64_t width) {
  const uint64_t n = (width + kernels::kGroup - 1) / kernels::kGroup;
  return Buffer(rows * n * sizeof(kernels::QuantBlock));
}

}  // namespace

Model::Model(std::shared_ptr<const ModelFile> file, Weights weights, kernels::Device& device,
             kernels::KvPool pool, uint32_t rows_max)
    : file_(std::move(file)),
      config_(file_->config()),
      weights_(std::move(weights)),
      device_(device),
      pool_(pool) {
  const LlamaConfig& c = config_;
  const uint32_t widest = std::max({c.dim, c.q_rows(), c.ffn});
  const uint32_t logit_rows = std::min(rows_max, kLogitRows);
  rope_ = floats(c.context, c.rotated);
  kernels::build_rope(static_cast<int32_t>(c.context), static_cast<int32_t>(c.rotated), c.rope_base,
                      c.rope_factor, c.rope_divisors.empty() ? nullptr : c.rope_divisors.data(),
                      rope_.as<float>());
  hidden_ = floats(rows_max, c.dim);
  qkv_ = floats(rows_max, c.qkv_rows());
  gate_up_ = floats(rows_max, uint64_t{2} * c.ffn);
  input_f32_ = floats(rows_max, widest);
  input_q_ = blocks(rows_max, widest);
  last_ = floats(logit_rows, c.dim);
  logits_ = floats(logit_rows, c.vocab);
  ids_ = Buffer(rows_max * sizeof(int32_t));
  chosen_ = Buffer(logit_rows * sizeof(int32_t));
  step_rows_ = Buffer(rows_max * sizeof(kernels::StepRow));
  parameters_ = Buffer(logit_rows * sizeof(kernels::SampleRow));
}

std::vector<Token> Model::run(const Step& step, const LogitsSink& sink) {
  std::vector<Token> sampled(step.sequences.size(), -1);
  const auto rows = static_cast<int32_t>(step.rows());
  if (rows == 0) return sampled;
  gather(step);
  device_.run(kernels::Embed{.table = weights_.embedding,
                             .ids = ids_.as<int32_t>(),
                             .rows = rows,
                             .y = hidden_.as<float>()});
  for (uint32_t i = 0; i < config_.layers; i++) layer(static_cast<int32_t>(i), rows);
  sample(step, sink, sampled);
  return sampled;
}

void Model::gather(const Step& step) {
  auto* id = ids_.as<int32_t>();
  auto* row = step_rows_.as<kernels::StepRow>();
  for (const StepSequence& s : step.sequences)
    for (size_t i = 0; i < s.tokens.size(); i++) {
      *id++ = s.tokens[i];
      *row++ = {.blocks = s.blocks.data(), .position = static_cast<int32_t>(s.position + i)};
    }
}

void Model::layer(int32_t index, int32_t rows) {
  attend(index, rows);
  feed_forward(index, rows);
}

// hidden += out(attention(rotate(qkv(norm(hidden)))))
void Model::attend(int32_t index, int32_t rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(index)];
  normalize(hidden_.as<float>(), w.attention_norm, rows, w.qkv);
  multiply(w.qkv, rows, qkv_.as<float>(), false);
  device_.run(kernels::RopeAppendKv{.qkv = qkv_.as<float>(),
                                    .step = step_rows_.as<kernels::StepRow>(),
                                    .rope = rope_.as<float>(),
                                    .rows = rows,
                                    .heads = static_cast<int32_t>(config_.heads),
                                    .rotated = static_cast<int32_t>(config_.rotated),
                                    .layer = index,
                                    .kv = pool_});
  device_.run(kernels::Attention{.qkv = qkv_.as<float>(),
                                 .step = step_rows_.as<kernels::StepRow>(),
                                 .rows = rows,
                                 .heads = static_cast<int32_t>(config_.heads),
                                 .layer = index,
                                 .kv = pool_,
                                 .y = output_for(w.out)});
  multiply(w.out, rows, hidden_.as<float>(), true);
}

// hidden += down(swiglu(gate_up(norm(hidden))))
void Model::feed_forward(int32_t index, int32_t rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(index)];
  normalize(hidden_.as<float>(), w.ffn_norm, rows, w.gate_up);
  multiply(w.gate_up, rows, gate_up_.as<float>(), false);
  device_.run(kernels::SwiGlu{.x = gate_up_.as<float>(),
                              .rows = rows,
                              .ffn = static_cast<int32_t>(config_.ffn),
                              .y = output_for(w.down)});
  multiply(w.down, rows, hidden_.as<float>(), true);
}

void Model::sample(const Step& step, const LogitsSink& sink, std::vector<Token>& sampled) {
  std::vector<uint32_t> wanted;
  for (uint32_t i = 0; i < step.sequences.size(); i++)
    if (step.sequences[i].sample) wanted.push_back(i);
  const std::span<const uint32_t> all(wanted);
  for (size_t at = 0; at < all.size(); at += kLogitRows)
    sample_rows(step, all.subspan(at, std::min<size_t>(kLogitRows, all.size() - at)), sink,
                sampled);
}

// Final norm, logits and choice for the last rows of some sequences.
void Model::sample_rows(const Step& step, std::span<const uint32_t> sequences,
                        const LogitsSink& sink, std::vector<Token>& sampled) {
  const size_t dim = config_.dim;
  auto* parameters = parameters_.as<kernels::SampleRow>();
  size_t row = 0, sequence = 0, n = 0;  // `row` is the first one of `sequence`
  for (const uint32_t wanted : sequences) {
    for (; sequence < wanted; sequence++) row += step.sequences[sequence].tokens.size();
    const StepSequence& s = step.sequences[wanted];
    const size_t last = row + s.tokens.size() - 1;
    std::memcpy(last_.as<float>() + n * dim, hidden_.as<float>() + last * dim, dim * sizeof(float));
    parameters[n++] = {.temperature = s.sampling.temperature,
                       .top_k = s.sampling.top_k,
                       .top_p = s.sampling.top_p,
                       .min_p = s.sampling.min_p,
                       .seed = s.sampling.seed,
                       .index = s.index};
  }
  const auto rows = static_cast<int32_t>(n);
  normalize(last_.as<float>(), weights_.output_norm, rows, weights_.output);
  multiply(weights_.output, rows, logits_.as<float>(), false);
  const uint32_t known = file_->known_tokens();
  device_.run(kernels::Sample{.logits = logits_.as<float>(),
                              .params = parameters,
                              .rows = rows,
                              .vocab = static_cast<int32_t>(known),
                              .stride = int64_t{config_.vocab},
                              .ids = chosen_.as<int32_t>()});
  for (size_t i = 0; i < n; i++) {
    const int32_t id = chosen_.as<int32_t>()[i];
    sampled[sequences[i]] = id < 0 ? StepDone::kNumeric : id;
    if (sink) sink(sequences[i], {logits_.as<float>() + i * config_.vocab, known});
  }
}

// Where an operation leaves the input of `next`, in the forms that `next` takes.
kernels::RowsOut Model::output_for(const Projection& next) const {
  const bool blocks = device_.quantizes() && next.any_quantized();
  const bool plain = !device_.quantizes() || next.any_float();
  return {.f32 = plain ? input_f32_.as<float>() : nullptr,
          .q = blocks ? input_q_.as<kernels::QuantBlock>() : nullptr};
}

void Model::normalize(const float* x, const float* gain, int32_t rows, const Projection& next) {
  device_.run(kernels::RmsNorm{.x = x,
                               .gain = gain,
                               .rows = rows,
                               .dim = static_cast<int32_t>(config_.dim),
                               .eps = config_.eps,
                               .y = output_for(next)});
}

void Model::multiply(const Projection& w, int32_t rows, float* y, bool add) {
  for (const Projection::Part& part : w.parts) {
    const bool blocks = device_.quantizes() && kernels::quantized(part.matrix.type);
    kernels::Rows x;
    if (blocks)
      x.q = input_q_.as<kernels::QuantBlock>();
    else
      x.f32 = input_f32_.as<float>();
    device_.run(kernels::MatMul{.w = part.matrix,
                                .x = x,
                                .rows = rows,
                                .y = y + part.at,
                                .stride = int64_t{w.rows},
                                .add = add});
  }
}

}  // namespace headrace::worker
