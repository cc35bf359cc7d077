#include <doctest/doctest.h>

#include "tests/simt/hooks/moves.h"
#include "tests/simt/logits_case.h"

namespace headrace::simt {
namespace {

constexpr int32_t kVocab = 32000;

// As the cost says but for the workspace, which stays in the L2 and is at most `share` of the cost;
// lines that read whole rows take whole sectors.
void check_logits(const Accesses& accesses, const void* workspace, const kernels::Cost& cost,
                  double share, const char* file) {
  const BufferUse& scratch = accesses.of(workspace);
  const uint64_t passed = scratch.read.bytes + scratch.written.bytes;
  CAPTURE(scratch.read.bytes);
  CAPTURE(scratch.written.bytes);
  CHECK(passed > 0);
  CHECK(static_cast<double>(passed) <= share * static_cast<double>(cost.bytes()));
  Accesses activations = accesses;
  std::erase_if(activations.buffers, [&](const BufferUse& use) {
    return reinterpret_cast<uintptr_t>(workspace) - use.base < use.size;
  });
  check_moves(activations, {}, cost);
  std::erase_if(activations.lines,
                [](const LineUse& use) { return use.shared || use.bytes < 4 * kVocab; });
  check_lines(activations, file);
}

TEST_CASE("log probs move what they cost, in whole sectors") {
  const LogitsCase c(2, kVocab, 1);
  const std::vector<int32_t> chosen = {5, 31999};
  const std::vector<int32_t> counts = {4, 4};
  const DeviceBuffer<float> x(c.x);
  const DeviceBuffer<int32_t> device_chosen(chosen);
  const DeviceBuffer<int32_t> device_counts(counts);
  const DeviceBuffer<float> out(std::vector<float>(32, 0.0f));
  const DeviceBuffer<int32_t> ids(std::vector<int32_t>(8, 0));
  kernels::LogProbs op{x.get(),   device_chosen.get(), device_counts.get(), 2, kVocab, c.stride, 4,
                       out.get(), ids.get(),           out.get() + 16};
  const size_t bytes = cuda::workspace_bytes(op);
  const Workspace workspace(bytes);
  const Accesses accesses = record_once([&](cudaStream_t stream) {
    return cuda::enqueue(op, {stream, 132, workspace.memory.get(), bytes});
  });
  op.chosen = chosen.data();  // cost() is the host's
  op.counts = counts.data();
  check_logits(accesses, workspace.memory.get(), kernels::cost(op), 0.02, "log_probs.cu:");
}

TEST_CASE("sample moves what it costs, in whole sectors, however often it looks") {
  const LogitsCase c(3, kVocab, 2);
  const std::vector<kernels::SampleRow> params = {
      {0, 0, 1, 0, 0, 0}, {1, 0, 0.9f, 0, 1, 1}, {0.7f, 50, 0.9f, 0.01f, 1, 1}};
  const DeviceBuffer<float> x(c.x);
  const DeviceBuffer<kernels::SampleRow> device_params(params);
  const DeviceBuffer<int32_t> ids({0, 0, 0});
  kernels::Sample op{x.get(), device_params.get(), 3, kVocab, c.stride, ids.get()};
  const size_t bytes = cuda::workspace_bytes(op);
  const Workspace workspace(bytes);
  const Accesses accesses = record_once([&](cudaStream_t stream) {
    return cuda::enqueue(op, {stream, 132, workspace.memory.get(), bytes});
  });
  op.params = params.data();
  check_logits(accesses, workspace.memory.get(), kernels::cost(op), 0.9, "sample.cu:");
  // Scan and weights read the row once each; a border looks its bucket up.
  CHECK(accesses.of(x.get()).read.bytes <= uint64_t{3} * kVocab * 4 * 4);
}

TEST_CASE("adjust logits moves an edit and its logit") {
  const DeviceBuffer<float> x(std::vector<float>(1024, 1.0f));
  std::vector<kernels::LogitEdit> edits;
  for (int32_t id = 0; id < 1024; id += 4) edits.push_back({id, 2, 1});
  const std::vector<int32_t> begins = {0, static_cast<int32_t>(edits.size())};
  const DeviceBuffer<kernels::LogitEdit> device_edits(edits);
  const DeviceBuffer<int32_t> device_begins(begins);
  kernels::AdjustLogits op{x.get(), device_edits.get(), device_begins.get(), 1, 1024, 1024};
  const Accesses accesses =
      record_once([&](cudaStream_t stream) { return cuda::enqueue(op, {.stream = stream}); });
  op.begins = begins.data();
  check_moves(accesses, {}, kernels::cost(op));
}

}  // namespace
}  // namespace headrace::simt
