#include "worker/model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/rope_table.h"
#include "protocol/limits.h"

namespace headrace::worker {
namespace {

static_assert(kLogprobFloor == kernels::kLogprobMin);

// Rows that go through the output matrix together; more are cut into several passes, which read the
// output matrix again but bound the memory for logits.
constexpr uint32_t kLogitRows = 64;
constexpr auto kTop = static_cast<int32_t>(limits::kLogprobs);

constexpr uint64_t kFloat = sizeof(float);

}  // namespace

Model::Model(std::shared_ptr<const ModelFile> file, Weights weights, kernels::Device& device,
             kernels::KvPool pool, uint64_t positions, uint32_t rows_max)
    : file_(std::move(file)),
      config_(file_->config()),
      weights_(std::move(weights)),
      device_(device),
      pool_(pool) {
  const LlamaConfig& c = config_;
  const auto rows = static_cast<uint64_t>(std::max(
      device_.padded(static_cast<int32_t>(rows_max), true), static_cast<int32_t>(rows_max)));
  const uint64_t logit_rows = std::min<uint64_t>(rows, kLogitRows);
  make_rope(positions);
  hidden_ = device_.allocate(rows * c.dim * kFloat);
  qkv_ = device_.allocate(rows * c.qkv_rows() * kFloat);
  const auto paired = [](const LayerWeights& l) { return l.gate_up.parts[0].matrix.paired; };
  const auto& layers = weights_.layers;
  // Paired products need no place for both halves, but one of their own for what comes out.
  const bool all = std::all_of(layers.begin(), layers.end(), paired);
  const bool any = std::any_of(layers.begin(), layers.end(), paired);
  if (!all) gate_up_ = device_.allocate(rows * 2 * c.ffn * kFloat);
  make_input(input_, rows, std::max({c.dim, c.q_rows(), all ? 0 : c.ffn}));
  if (any) make_input(gated_, rows, c.ffn);
  last_ = device_.allocate(logit_rows * c.dim * kFloat);
  logits_ = device_.allocate(logit_rows * static_cast<uint64_t>(logit_stride()) * kFloat);
  ids_ = device_.mirror(rows * sizeof(int32_t));
  step_rows_ = device_.mirror(rows * sizeof(kernels::StepRow));
  last_rows_ = device_.mirror(logit_rows * sizeof(int32_t));
  chosen_ = device_.mirror(logit_rows * sizeof(int32_t));
  parameters_ = device_.mirror(logit_rows * sizeof(kernels::SampleRow));
  begins_ = device_.mirror((logit_rows + 1) * sizeof(int32_t));
  counts_ = device_.mirror(logit_rows * sizeof(int32_t));
  chosen_logprobs_ = device_.mirror(logit_rows * kFloat);
  top_ids_ = device_.mirror(logit_rows * limits::kLogprobs * sizeof(int32_t));
  top_logprobs_ = device_.mirror(logit_rows * limits::kLogprobs * kFloat);
}

// Floats from one row of logits to the next: whole lines of 64 bytes.
int64_t Model::logit_stride() const { return (int64_t{config_.vocab} + 15) / 16 * 16; }

// For no more positions than the context and the KV blocks allow.
void Model::make_rope(uint64_t positions) {
  const LlamaConfig& c = config_;
  positions = std::min<uint64_t>(positions, c.context);
  const uint64_t bytes = kernels::rope_bytes(positions, c.rotated);
  const auto build = [&](float* to) {
    kernels::build_rope(static_cast<int32_t>(positions), static_cast<int32_t>(c.rotated),
                        c.rope_base, c.rope_factor,
                        c.rope_divisors.empty() ? nullptr : c.rope_divisors.data(), to);
  };
  rope_ = device_.allocate(bytes);
  if (device_.host_visible()) return build(rope_.as<float>());
  std::vector<float> table(bytes / kFloat);
  build(table.data());
  device_.write(rope_.data(), std::as_bytes(std::span(table)));
}

void Model::make_input(Input& input, uint64_t rows, uint64_t width) {
  const auto some = [&](kernels::Activation form) {
    return device_.activation(kernels::WeightType::kW4) == form ||
           device_.activation(kernels::WeightType::kF32) == form;
  };
  const uint64_t groups = (width + kernels::kGroup - 1) / kernels::kGroup;
  const auto pitch = static_cast<uint64_t>(kernels::bf16_pitch(static_cast<int64_t>(width)));
  if (some(kernels::Activation::kF32)) input.f32 = device_.allocate(rows * width * kFloat);
  if (some(kernels::Activation::kBlocks))
    input.q = device_.allocate(rows * groups * sizeof(kernels::QuantBlock));
  if (some(kernels::Activation::kBf16)) {
    input.bf16 = device_.allocate(rows * pitch * sizeof(uint16_t));
    input.sums = device_.allocate(rows * pitch / kernels::kGroup * kFloat);
  }
}

StepDone Model::run(const Step& step, const LogitsSink& sink) {
  StepDone done;
  done.sampled.assign(step.sequences.size(), -1);
  if (step.rows() == 0) return done;
  std::vector<uint32_t> wanted;
  for (uint32_t i = 0; i < step.sequences.size(); i++)
    if (step.sequences[i].sample) wanted.push_back(i);
  const bool decode = wanted.size() == step.rows();  // of each sequence one row, which samples
  const int32_t rows = gather(step, decode);
  const bool whole = decode && rows <= static_cast<int32_t>(kLogitRows);
  if (whole) gather_last(step, wanted, rows);
  const std::span<const kernels::StepRow> host(step_rows_.as<kernels::StepRow>(),
                                               static_cast<size_t>(rows));
  device_.forward(host, whole ? 1 : 0, [&] {
    device_.run(kernels::Embed{.table = weights_.embedding,
                               .ids = ids_.device<int32_t>(),
                               .rows = rows,
                               .y = hidden_.as<float>()});
    for (uint32_t i = 0; i < config_.layers; i++) layer(static_cast<int32_t>(i), rows);
    if (whole) head(rows);
  });
  const std::span<const uint32_t> all(wanted);
  for (size_t at = 0; at < all.size(); at += kLogitRows) {
    const auto some = all.subspan(at, std::min<size_t>(kLogitRows, all.size() - at));
    if (!whole) {
      gather_last(step, some, static_cast<int32_t>(some.size()));
      head(static_cast<int32_t>(some.size()));
    }
    sample(step, some, sink, done);
  }
  device_.finish();
  return done;
}

// What the rows are; gives how many, padding included.
int32_t Model::gather(const Step& step, bool decode) {
  const auto rows = static_cast<int32_t>(step.rows());
  size_t table = 0;
  for (const StepSequence& s : step.sequences) table += s.blocks.size();
  grow(tables_, table * sizeof(uint32_t));
  auto* id = ids_.as<int32_t>();
  auto* row = step_rows_.as<kernels::StepRow>();
  table = 0;
  for (const StepSequence& s : step.sequences) {
    std::copy(s.blocks.begin(), s.blocks.end(), tables_.as<uint32_t>() + table);
    for (size_t i = 0; i < s.tokens.size(); i++) {
      *id++ = s.tokens[i];
      *row++ = {.blocks = tables_.device<uint32_t>() + table,
                .position = static_cast<int32_t>(s.position + i)};
    }
    table += s.blocks.size();
  }
  const int32_t padded = device_.padded(rows, decode);
  for (int32_t r = rows; r < padded; r++) {
    *id++ = -1;
    *row++ = {.blocks = nullptr, .position = -1};
  }
  device_.push(tables_, table * sizeof(uint32_t));
  device_.push(ids_, static_cast<size_t>(padded) * sizeof(int32_t));
  device_.push(step_rows_, static_cast<size_t>(padded) * sizeof(kernels::StepRow));
  return padded;
}

// At least so large; what was in it is lost. Nothing that uses it is under way.
void Model::grow(kernels::Mirror& mirror, size_t bytes) {
  // With room to spare, since tables and penalties grow with almost every step.
  if (bytes > mirror.host.size()) mirror = device_.mirror(bytes + bytes / 2);
}

void Model::layer(int32_t index, int32_t rows) {
  attend(index, rows);
  feed_forward(index, rows);
}

// hidden += out(attention(rotate(qkv(norm(hidden)))))
void Model::attend(int32_t index, int32_t rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(index)];
  normalize(hidden_.as<float>(), w.attention_norm, rows, w.qkv);
  const kernels::RopeAppendKv rope{.qkv = qkv_.as<float>(),
                                   .step = step_rows_.device<kernels::StepRow>(),
                                   .rope = rope_.as<float>(),
                                   .rows = rows,
                                   .heads = static_cast<int32_t>(config_.heads),
                                   .rotated = static_cast<int32_t>(config_.rotated),
                                   .layer = index,
                                   .kv = pool_};
  const kernels::Matrix& first = w.qkv.parts[0].matrix;
  if (w.qkv.parts.size() == 1 && pool_.layout.head_dim % 2 == 0) {
    device_.run(kernels::MatMulRope{.w = first, .x = input_for(first.type, input_), .rope = rope});
  } else {
    multiply(w.qkv, input_, rows, qkv_.as<float>(), w.qkv.rows, false);
    device_.run(rope);
  }
  device_.run(kernels::Attention{.qkv = qkv_.as<float>(),
                                 .step = step_rows_.device<kernels::StepRow>(),
                                 .rows = rows,
                                 .heads = static_cast<int32_t>(config_.heads),
                                 .layer = index,
                                 .kv = pool_,
                                 .y = output_for(w.out, input_),
                                 .host_step = step_rows_.as<kernels::StepRow>()});
  multiply(w.out, input_, rows, hidden_.as<float>(), w.out.rows, true);
}

// hidden += down(swiglu(gate_up(norm(hidden))))
void Model::feed_forward(int32_t index, int32_t rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(index)];
  normalize(hidden_.as<float>(), w.ffn_norm, rows, w.gate_up);
  const kernels::Matrix& first = w.gate_up.parts[0].matrix;
  const Input& gated = first.paired ? gated_ : input_;  // a paired product may not write its input
  if (first.paired) {
    device_.run(kernels::MatMulSwiGlu{.w = first,
                                      .x = input_for(first.type, input_),
                                      .rows = rows,
                                      .y = output_for(w.down, gated)});
  } else {
    multiply(w.gate_up, input_, rows, gate_up_.as<float>(), w.gate_up.rows, false);
    device_.run(kernels::SwiGlu{.x = gate_up_.as<float>(),
                                .rows = rows,
                                .ffn = static_cast<int32_t>(config_.ffn),
                                .y = output_for(w.down, gated)});
  }
  multiply(w.down, gated, rows, hidden_.as<float>(), w.down.rows, true);
}

// Final norm and logits of the rows that gather_last named.
void Model::head(int32_t rows) {
  device_.run(kernels::GatherRows{.x = hidden_.as<float>(),
                                  .index = last_rows_.device<int32_t>(),
                                  .rows = rows,
                                  .dim = static_cast<int32_t>(config_.dim),
                                  .y = last_.as<float>()});
  normalize(last_.as<float>(), weights_.output_norm, rows, weights_.output);
  multiply(weights_.output, input_, rows, logits_.as<float>(), logit_stride(), false);
}

// Chooses for the sequences whose logits are there.
void Model::sample(const Step& step, std::span<const uint32_t> sequences, const LogitsSink& sink,
                   StepDone& done) {
  adjust(step, sequences);
  const auto rows = static_cast<int32_t>(sequences.size());
  const uint32_t known = file_->known_tokens();
  device_.run(kernels::Sample{.logits = logits_.as<float>(),
                              .params = parameters_.device<kernels::SampleRow>(),
                              .rows = rows,
                              .vocab = static_cast<int32_t>(known),
                              .stride = logit_stride(),
                              .ids = chosen_.device<int32_t>(),
                              .host_params = parameters_.as<kernels::SampleRow>()});
  const bool explained = ask_logprobs(step, sequences);
  device_.pull(chosen_, sequences.size() * sizeof(int32_t));
  device_.finish();
  for (size_t i = 0; i < sequences.size(); i++) {
    const int32_t id = chosen_.as<int32_t>()[i];
    done.sampled[sequences[i]] = id < 0 ? StepDone::kNumeric : id;
  }
  if (explained) take_logprobs(sequences, done);
  if (sink) show_logits(sequences, sink);
}

void Model::show_logits(std::span<const uint32_t> sequences, const LogitsSink& sink) {
  std::vector<float> copy(file_->known_tokens());
  for (size_t i = 0; i < sequences.size(); i++) {
    const float* const from = logits_.as<float>() + i * static_cast<size_t>(logit_stride());
    device_.read(std::as_writable_bytes(std::span(copy)), reinterpret_cast<const std::byte*>(from));
    sink(sequences[i], copy);
  }
}

// The last row of each sequence, and how it is sampled; `rows` of them, the others are padding.
void Model::gather_last(const Step& step, std::span<const uint32_t> sequences, int32_t rows) {
  auto* parameters = parameters_.as<kernels::SampleRow>();
  auto* index = last_rows_.as<int32_t>();
  size_t row = 0, sequence = 0, n = 0;  // `row` is the first one of `sequence`
  for (const uint32_t wanted : sequences) {
    for (; sequence < wanted; sequence++) row += step.sequences[sequence].tokens.size();
    const StepSequence& s = step.sequences[wanted];
    index[n] = static_cast<int32_t>(row + s.tokens.size() - 1);
    parameters[n++] = {.temperature = s.sampling.temperature,
                       .top_k = s.sampling.top_k,
                       .top_p = s.sampling.top_p,
                       .min_p = s.sampling.min_p,
                       .seed = s.sampling.seed,
                       .index = s.index};
  }
  std::fill(index + n, index + rows, -1);
  device_.push(parameters_, n * sizeof(kernels::SampleRow));
  device_.push(last_rows_, static_cast<size_t>(rows) * sizeof(int32_t));
}

// Penalties and bias of those that have some.
void Model::adjust(const Step& step, std::span<const uint32_t> sequences) {
  size_t total = 0;
  for (const uint32_t i : sequences) total += step.sequences[i].edits.size();
  if (total == 0) return;
  grow(edits_, total * sizeof(kernels::LogitEdit));
  auto* edit = edits_.as<kernels::LogitEdit>();
  auto* begin = begins_.as<int32_t>();
  *begin = 0;
  for (const uint32_t i : sequences) {
    const auto& edits = step.sequences[i].edits;
    edit = std::copy(edits.begin(), edits.end(), edit);
    begin[1] = *begin + static_cast<int32_t>(edits.size());
    ++begin;
  }
  device_.push(edits_, total * sizeof(kernels::LogitEdit));
  device_.push(begins_, (sequences.size() + 1) * sizeof(int32_t));
  device_.run(kernels::AdjustLogits{.logits = logits_.as<float>(),
                                    .edits = edits_.device<kernels::LogitEdit>(),
                                    .begins = begins_.device<int32_t>(),
                                    .rows = static_cast<int32_t>(sequences.size()),
                                    .vocab = static_cast<int32_t>(config_.vocab),
                                    .stride = logit_stride(),
                                    .host_begins = begins_.as<int32_t>()});
}

// Log-probabilities for those that ask; false if nobody does.
bool Model::ask_logprobs(const Step& step, std::span<const uint32_t> sequences) {
  auto* counts = counts_.as<int32_t>();
  bool any = false;
  for (size_t i = 0; i < sequences.size(); i++) {
    counts[i] = static_cast<int32_t>(step.sequences[sequences[i]].sampling.logprobs);
    any = any || counts[i] > 0;
  }
  if (!any) return false;
  device_.push(counts_, sequences.size() * sizeof(int32_t));
  device_.run(kernels::LogProbs{.logits = logits_.as<float>(),
                                .chosen = chosen_.device<int32_t>(),
                                .counts = counts_.device<int32_t>(),
                                .rows = static_cast<int32_t>(sequences.size()),
                                .vocab = static_cast<int32_t>(file_->known_tokens()),
                                .stride = logit_stride(),
                                .top = kTop,
                                .chosen_logprob = chosen_logprobs_.device<float>(),
                                .top_ids = top_ids_.device<int32_t>(),
                                .top_logprobs = top_logprobs_.device<float>(),
                                .host_counts = counts});
  const size_t tops = sequences.size() * static_cast<size_t>(kTop);
  device_.pull(chosen_logprobs_, sequences.size() * kFloat);
  device_.pull(top_ids_, tops * sizeof(int32_t));
  device_.pull(top_logprobs_, tops * kFloat);
  return true;
}

// Those of the sequences that have got a token.
void Model::take_logprobs(std::span<const uint32_t> sequences, StepDone& done) {
  done.logprobs.resize(done.sampled.size());
  for (size_t i = 0; i < sequences.size(); i++) {
    const int32_t count = counts_.as<int32_t>()[i];
    if (count == 0 || chosen_.as<int32_t>()[i] < 0) continue;
    Logprobs& logprobs = done.logprobs[sequences[i]];
    logprobs.chosen = chosen_logprobs_.as<float>()[i];
    for (size_t k = i * kTop; k < i * kTop + static_cast<size_t>(count); k++)
      if (top_ids_.as<int32_t>()[k] >= 0)
        logprobs.top.push_back({top_ids_.as<int32_t>()[k], top_logprobs_.as<float>()[k]});
  }
}

// Where an operation leaves the input of `next`, in the forms that `next` takes.
kernels::RowsOut Model::output_for(const Projection& next, const Input& input) const {
  kernels::RowsOut to;
  for (const Projection::Part& part : next.parts) {
    switch (device_.activation(part.matrix.type)) {
      case kernels::Activation::kF32:
        to.f32 = input.f32.as<float>();
        break;
      case kernels::Activation::kBlocks:
        to.q = input.q.as<kernels::QuantBlock>();
        break;
      case kernels::Activation::kBf16:
        to.bf16 = input.bf16.as<uint16_t>();
        to.sums = input.sums.as<float>();
        break;
    }
  }
  return to;
}

kernels::Rows Model::input_for(kernels::WeightType type, const Input& input) const {
  switch (device_.activation(type)) {
    case kernels::Activation::kBlocks:
      return {.q = input.q.as<kernels::QuantBlock>()};
    case kernels::Activation::kBf16:
      return {.bf16 = input.bf16.as<uint16_t>(), .sums = input.sums.as<float>()};
    case kernels::Activation::kF32:
      break;
  }
  return {.f32 = input.f32.as<float>()};
}

void Model::normalize(const float* x, const float* gain, int32_t rows, const Projection& next) {
  device_.run(kernels::RmsNorm{.x = x,
                               .gain = gain,
                               .rows = rows,
                               .dim = static_cast<int32_t>(config_.dim),
                               .eps = config_.eps,
                               .y = output_for(next, input_)});
}

void Model::multiply(const Projection& w, const Input& input, int32_t rows, float* y,
                     int64_t stride, bool add) {
  for (const Projection::Part& part : w.parts) {
    device_.run(kernels::MatMul{.w = part.matrix,
                                .x = input_for(part.matrix.type, input),
                                .rows = rows,
                                .y = y + part.at,
                                .stride = stride,
                                .add = add});
  }
}

}  // namespace headrace::worker
