#include "kernels/cpu_device.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "kernels/account.h"
#include "kernels/check.h"
#include "kernels/cpu/bodies.h"

namespace headrace::kernels {
namespace {

// The bodies of one path.
struct Bodies {
  void (*embed)(const Embed&, ThreadPool&);
  void (*rms_norm)(const RmsNorm&, ThreadPool&);
  void (*quantize_rows)(const QuantizeRows&, ThreadPool&);
  void (*matmul)(const MatMul&, ThreadPool&, std::byte*, const Epilogue&);
  void (*rotate)(const void*, const TileResults&);
  void (*gate)(const void*, const TileResults&);
  void (*rope_append_kv)(const RopeAppendKv&, ThreadPool&);
  void (*attention)(const Attention&, ThreadPool&, std::byte*);
  void (*swiglu)(const SwiGlu&, ThreadPool&);
  void (*log_probs)(const LogProbs&, ThreadPool&);
  void (*sample)(const Sample&, ThreadPool&, std::byte*);
};

#define HEADRACE_BODIES(path)                                                                  \
  Bodies {                                                                                     \
    embed_##path, rms_norm_##path, quantize_rows_##path, matmul_##path, rotate_##path,         \
        gate_##path, rope_append_kv_##path, attention_##path, swiglu_##path, log_probs_##path, \
        sample_##path                                                                          \
  }
Bodies bodies_of(CpuPath path) {
  switch (path) {
    case CpuPath::kPortable:
      return HEADRACE_BODIES(portable);
    case CpuPath::kAvx2:
      return HEADRACE_BODIES(avx2);
    case CpuPath::kAvx512Vnni:
      return HEADRACE_BODIES(avx512);
    case CpuPath::kAmx: {
      Bodies bodies = HEADRACE_BODIES(avx512);
      bodies.matmul = matmul_amx;
      return bodies;
    }
  }
  return {};
}
#undef HEADRACE_BODIES

class CpuDevice final : public Device {
 public:
  CpuDevice(CpuPath path, int threads) : path_(path), bodies_(bodies_of(path)), pool_(threads) {}

  std::string name() const override {
    const int n = pool_.threads();
    return std::string("cpu ") + kernels::name(path_) + ", " + std::to_string(n) +
           (n == 1 ? " thread" : " threads");
  }
  std::string numerics() const override {
    return "cpu-int8/32 slice" + std::to_string(kAttentionSlice);
  }
  Activation activation(WeightType weights) const override {
    return quantized(weights) ? Activation::kBlocks : Activation::kF32;
  }
  KvType kv_type() const override { return KvType::kF16; }

  void run(const Embed& op) override { timed(op, bodies_.embed); }
  void run(const RmsNorm& op) override { timed(op, bodies_.rms_norm); }
  void run(const QuantizeRows& op) override { timed(op, bodies_.quantize_rows); }
  void run(const MatMul& op) override { timed(op, op, {}); }
  void run(const MatMulRope& op) override {
    const KvLayout& l = op.rope.kv.layout;
    KERNELS_CHECK(l.head_dim % 2 == 0);  // no pair across tiles
    KERNELS_CHECK(l.type == KvType::kF16 && l.order == KvOrder::kLanes);
    KERNELS_CHECK(op.w.rows == (op.rope.heads + 2 * l.kv_heads) * l.head_dim);
    timed(op, product_of(op), {bodies_.rotate, &op});
  }
  bool pairs() const override { return true; }
  void run(const MatMulSwiGlu& op) override {
    timed(op, product_of(op), {bodies_.gate, &op, true});
  }
  void run(const GatherRows& op) override {
    timed(op, [](const GatherRows& o, ThreadPool&) { reference(o); });
  }
  void run(const RopeAppendKv& op) override { timed(op, bodies_.rope_append_kv); }
  void run(const SwiGlu& op) override { timed(op, bodies_.swiglu); }
  void run(const Attention& op) override {
    timed(op, bodies_.attention, scratch(attention_scratch_bytes(op, pool_.threads())));
  }
  // One body for all paths: a few scattered logits.
  void run(const AdjustLogits& op) override {
    timed(op, [](const AdjustLogits& o, ThreadPool&) { reference(o); });
  }
  void run(const LogProbs& op) override { timed(op, bodies_.log_probs); }
  void run(const Sample& op) override {
    timed(op, bodies_.sample, scratch(sample_scratch_bytes(op, pool_.threads())));
  }

  bool pin_threads() override { return pool_.pin(); }

  std::vector<OpAccount> take_accounts() override { return accounts_.take(); }

 private:
  template <class Op, class Body, class... Scratch>
  void timed(const Op& op, Body body, Scratch... scratch) {
    const auto start = std::chrono::steady_clock::now();
    body(op, pool_, scratch...);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    accounts_.add(kernels::name(op), cost(op), took.count());
  }

  template <class Op>
  void timed(const Op& op, const MatMul& product, const Epilogue& after) {
    std::byte* const at = scratch(matmul_scratch_bytes(product, pool_.threads(), after.pairs));
    timed(op, [&](const Op&, ThreadPool& pool) { bodies_.matmul(product, pool, at, after); });
  }

  std::byte* scratch(size_t bytes) {
    // Grows with room to spare, so that a context that lengthens token by token seldom pays.
    if (bytes > scratch_.size()) scratch_ = Buffer(bytes + bytes / 2);
    return scratch_.data();
  }

  const CpuPath path_;
  const Bodies bodies_;
  ThreadPool pool_;
  Buffer scratch_;
  Accounts accounts_;
};

}  // namespace

int usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set), 1, ThreadPool::kThreadsMax);
}

std::unique_ptr<Device> make_cpu_device(CpuPath path, int threads) {
  KERNELS_CHECK(supported(path));
  if (threads <= 0) threads = usable_threads();
  return std::make_unique<CpuDevice>(path, std::min(threads, ThreadPool::kThreadsMax));
}

}  // namespace headrace::kernels
