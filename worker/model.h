#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "worker/engine.h"
#include "worker/model_file.h"
#include "worker/weights.h"

namespace headrace::worker {

// Gets the logits of a sequence that samples, edits made: [known tokens] floats, valid during the
// call.
using LogitsSink = std::function<void(size_t sequence, std::span<const float> logits)>;

// The forward pass of a step as a list of operations. All rows of all sequences go through the
// layers together; only rows that sample reach the output matrix. Holds the weights, the table of
// rotations and the activations of `rows_max` rows; the KV pool is the caller's.
class Model {
 public:
  // `device` and the pool's memory, which has room for `positions` tokens, outlive the model. Throws
  // std::bad_alloc.
  Model(std::shared_ptr<const ModelFile> file, Weights weights, kernels::Device& device,
        kernels::KvPool pool, uint64_t positions, uint32_t rows_max);

  // Fills `sampled` and `logprobs` of the result. The step is valid: see ModelEngine::run.
  StepDone run(const Step& step, const LogitsSink& sink);

 private:
  void make_rope(uint64_t positions);
  // An input of products, in the forms that the device's products take.
  struct Input {
    kernels::Buffer f32, q, bf16, sums;
  };
  void make_input(Input& input, uint64_t rows, uint64_t width);
  int32_t gather(const Step& step, bool decode);
  void grow(kernels::Mirror& mirror, size_t bytes);
  void layer(int32_t index, int32_t rows);
  void attend(int32_t index, int32_t rows);
  void feed_forward(int32_t index, int32_t rows);
  void gather_last(const Step& step, std::span<const uint32_t> sequences, int32_t rows);
  void head(int32_t rows);
  void sample(const Step& step, std::span<const uint32_t> sequences, const LogitsSink& sink,
              StepDone& done);
  void adjust(const Step& step, std::span<const uint32_t> sequences);
  bool ask_logprobs(const Step& step, std::span<const uint32_t> sequences);
  void take_logprobs(std::span<const uint32_t> sequences, StepDone& done);
  void show_logits(std::span<const uint32_t> sequences, const LogitsSink& sink);
  kernels::RowsOut output_for(const Projection& next, const Input& input) const;
  kernels::Rows input_for(kernels::WeightType type, const Input& input) const;
  void normalize(const float* x, const float* gain, int32_t rows, const Projection& next);
  void multiply(const Projection& w, const Input& input, int32_t rows, float* y, int64_t stride,
                bool add);
  int64_t logit_stride() const;

  std::shared_ptr<const ModelFile> file_;
  const LlamaConfig& config_;
  Weights weights_;
  kernels::Device& device_;
  kernels::KvPool pool_;

  // The device's own.
  kernels::Buffer rope_;     // [positions, rotated/2, 2]
  kernels::Buffer hidden_;   // [rows, dim]: the residual stream
  kernels::Buffer qkv_;      // [rows, qkv]
  kernels::Buffer gate_up_;  // [rows, 2*ffn]
  Input input_;              // [rows, widest input]: x of the next product
  Input gated_;              // [rows, ffn]: of the product behind a paired one
  kernels::Buffer last_;     // [logit rows, dim]: hidden rows that sample
  kernels::Buffer logits_;   // [logit rows, logit stride]
  // What goes in and out.
  kernels::Mirror ids_;              // [rows] tokens in
  kernels::Mirror step_rows_;        // [rows] StepRow
  kernels::Mirror tables_;           // block tables of all sequences; grows
  kernels::Mirror last_rows_;        // [logit rows] rows that sample
  kernels::Mirror chosen_;           // [logit rows] tokens out
  kernels::Mirror parameters_;       // [logit rows] SampleRow
  kernels::Mirror edits_;            // LogitEdit of all logit rows; grows
  kernels::Mirror begins_;           // [logit rows + 1]
  kernels::Mirror counts_;           // [logit rows] alternatives asked for
  kernels::Mirror chosen_logprobs_;  // [logit rows]
  kernels::Mirror top_ids_;          // [logit rows, kLogprobs]
  kernels::Mirror top_logprobs_;     // [logit rows, kLogprobs]
};

}  // namespace headrace::worker
