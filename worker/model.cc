#include "worker/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/rope_table.h"
#include "protocol/limits.h"

namespace headrace::worker {
namespace {

using kernels::Buffer;

static_assert(kLogprobFloor == kernels::kLogprobMin);

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
  begins_ = Buffer((logit_rows + 1) * sizeof(int32_t));
  counts_ = Buffer(logit_rows * sizeof(int32_t));
  chosen_logprobs_ = floats(logit_rows, 1);
  top_ids_ = Buffer(logit_rows * limits::kLogprobs * sizeof(int32_t));
  top_logprobs_ = floats(logit_rows, limits::kLogprobs);
}

StepDone Model::run(const Step& step, const LogitsSink& sink) {
  StepDone done;
  done.sampled.assign(step.sequences.size(), -1);
  const auto rows = static_cast<int32_t>(step.rows());
  if (rows == 0) return done;
  gather(step);
  device_.run(kernels::Embed{.table = weights_.embedding,
                             .ids = ids_.as<int32_t>(),
                             .rows = rows,
                             .y = hidden_.as<float>()});
  for (uint32_t i = 0; i < config_.layers; i++) layer(static_cast<int32_t>(i), rows);
  sample(step, sink, done);
  return done;
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

void Model::sample(const Step& step, const LogitsSink& sink, StepDone& done) {
  std::vector<uint32_t> wanted;
  for (uint32_t i = 0; i < step.sequences.size(); i++)
    if (step.sequences[i].sample) wanted.push_back(i);
  const std::span<const uint32_t> all(wanted);
  for (size_t at = 0; at < all.size(); at += kLogitRows)
    sample_rows(step, all.subspan(at, std::min<size_t>(kLogitRows, all.size() - at)), sink, done);
}

// Final norm, logits and choice for the last rows of some sequences.
void Model::sample_rows(const Step& step, std::span<const uint32_t> sequences,
                        const LogitsSink& sink, StepDone& done) {
  gather_last(step, sequences);
  const auto rows = static_cast<int32_t>(sequences.size());
  normalize(last_.as<float>(), weights_.output_norm, rows, weights_.output);
  multiply(weights_.output, rows, logits_.as<float>(), false);
  adjust(step, sequences);
  const uint32_t known = file_->known_tokens();
  device_.run(kernels::Sample{.logits = logits_.as<float>(),
                              .params = parameters_.as<kernels::SampleRow>(),
                              .rows = rows,
                              .vocab = static_cast<int32_t>(known),
                              .stride = int64_t{config_.vocab},
                              .ids = chosen_.as<int32_t>()});
  explain(step, sequences, done);
  for (size_t i = 0; i < sequences.size(); i++) {
    const int32_t id = chosen_.as<int32_t>()[i];
    done.sampled[sequences[i]] = id < 0 ? StepDone::kNumeric : id;
    if (sink) sink(sequences[i], {logits_.as<float>() + i * config_.vocab, known});
  }
}

// The last row of each sequence, and how it is sampled.
void Model::gather_last(const Step& step, std::span<const uint32_t> sequences) {
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
}

// Penalties and bias of those that have some.
void Model::adjust(const Step& step, std::span<const uint32_t> sequences) {
  size_t total = 0;
  for (const uint32_t i : sequences) total += step.sequences[i].edits.size();
  if (total == 0) return;
  const size_t bytes = total * sizeof(kernels::LogitEdit);
  // With room to spare, since penalties name one more token with almost every step.
  if (bytes > edits_.size()) edits_ = Buffer(bytes + bytes / 2);
  auto* edit = edits_.as<kernels::LogitEdit>();
  auto* begin = begins_.as<int32_t>();
  *begin = 0;
  for (const uint32_t i : sequences) {
    const auto& edits = step.sequences[i].edits;
    edit = std::copy(edits.begin(), edits.end(), edit);
    begin[1] = *begin + static_cast<int32_t>(edits.size());
    ++begin;
  }
  device_.run(kernels::AdjustLogits{.logits = logits_.as<float>(),
                                    .edits = edits_.as<kernels::LogitEdit>(),
                                    .begins = begins_.as<int32_t>(),
                                    .rows = static_cast<int32_t>(sequences.size()),
                                    .vocab = static_cast<int32_t>(config_.vocab),
                                    .stride = int64_t{config_.vocab}});
}

// Log-probabilities for those that ask and have got a token.
void Model::explain(const Step& step, std::span<const uint32_t> sequences, StepDone& done) {
  auto* counts = counts_.as<int32_t>();
  bool any = false;
  for (size_t i = 0; i < sequences.size(); i++) {
    counts[i] = static_cast<int32_t>(step.sequences[sequences[i]].sampling.logprobs);
    any = any || counts[i] > 0;
  }
  if (!any) return;
  constexpr auto kTop = static_cast<int32_t>(limits::kLogprobs);
  device_.run(kernels::LogProbs{.logits = logits_.as<float>(),
                                .chosen = chosen_.as<int32_t>(),
                                .counts = counts,
                                .rows = static_cast<int32_t>(sequences.size()),
                                .vocab = static_cast<int32_t>(file_->known_tokens()),
                                .stride = int64_t{config_.vocab},
                                .top = kTop,
                                .chosen_logprob = chosen_logprobs_.as<float>(),
                                .top_ids = top_ids_.as<int32_t>(),
                                .top_logprobs = top_logprobs_.as<float>()});
  done.logprobs.resize(step.sequences.size());
  for (size_t i = 0; i < sequences.size(); i++) {
    if (counts[i] == 0 || chosen_.as<int32_t>()[i] < 0) continue;
    Logprobs& logprobs = done.logprobs[sequences[i]];
    logprobs.chosen = chosen_logprobs_.as<float>()[i];
    for (size_t k = i * kTop; k < i * kTop + static_cast<size_t>(counts[i]); k++)
      if (top_ids_.as<int32_t>()[k] >= 0)
        logprobs.top.push_back({top_ids_.as<int32_t>()[k], top_logprobs_.as<float>()[k]});
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
