#include "kernels/reference_device.h"

#include <algorithm>
#include <chrono>

#include "kernels/account.h"
#include "kernels/cpu_device.h"
#include "kernels/thread_pool.h"

namespace headrace::kernels {
namespace {

// Tiles [begin, end) of the product: rows of the matrix do not know of each other.
MatMul part(const MatMul& op, int64_t begin, int64_t end) {
  MatMul out = op;
  out.w.data += static_cast<size_t>(begin) * op.w.tile_bytes();
  out.w.rows =
      static_cast<int32_t>(std::min<int64_t>(end * kTileRows, op.w.rows) - begin * kTileRows);
  out.y += begin * kTileRows;
  return out;
}

// Rows [begin, end): every row stands for itself.
Attention part(const Attention& op, int64_t begin, int64_t end) {
  const KvLayout& l = op.kv.layout;
  const int64_t width = int64_t{op.heads} * l.head_dim;
  Attention out = op;
  out.qkv += begin * (width + 2 * int64_t{l.kv_heads} * l.head_dim);
  out.step += begin;
  out.rows = static_cast<int32_t>(end - begin);
  if (op.y.f32) out.y.f32 += begin * width;
  if (op.y.q) out.y.q += begin * ((width + kGroup - 1) / kGroup);
  return out;
}

class ReferenceDevice final : public Device {
 public:
  explicit ReferenceDevice(int threads) : pool_(threads) {}

  std::string name() const override { return "reference"; }
  std::string numerics() const override { return "reference-f32"; }
  Activation activation(WeightType) const override { return Activation::kF32; }
  KvType kv_type() const override { return KvType::kF32; }

  void run(const Embed& op) override { account(op); }
  void run(const RmsNorm& op) override { account(op); }
  void run(const QuantizeRows& op) override { account(op); }
  void run(const MatMul& op) override { share(op, op.w.tiles()); }
  void run(const GatherRows& op) override { account(op); }
  void run(const RopeAppendKv& op) override { account(op); }
  void run(const Attention& op) override { share(op, op.rows); }
  void run(const SwiGlu& op) override { account(op); }
  void run(const AdjustLogits& op) override { account(op); }
  void run(const LogProbs& op) override { account(op); }
  void run(const Sample& op) override { account(op); }

  std::vector<OpAccount> take_accounts() override { return accounts_.take(); }

 private:
  template <class Op>
  void account(const Op& op) {
    timed(op, [&op] { reference(op); });
  }

  // The two that take all the time are cut into independent parts for the threads.
  template <class Op>
  void share(const Op& op, int64_t parts) {
    auto f = [&op](int64_t begin, int64_t end, int) { reference(part(op, begin, end)); };
    timed(op, [&] { parallel_for(pool_, parts, 1, f); });
  }

  template <class Op, class F>
  void timed(const Op& op, F f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    accounts_.add(kernels::name(op), cost(op), took.count());
  }

  ThreadPool pool_;
  Accounts accounts_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(int threads) {
  return std::make_unique<ReferenceDevice>(threads > 0 ? threads : usable_threads());
}

}  // namespace headrace::kernels
