#include "kernels/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "kernels/account.h"
#include "kernels/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/block_copies.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/copies.h"
#include "kernels/cuda/library_products.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_spread.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_graphs.h"

namespace headrace::kernels {
namespace {

using cuda::AttentionPlan;
using cuda::AttentionTile;
using cuda::check;

// Up to so many rows a step that only decodes is padded and recorded.
constexpr int32_t kGraphRows = 256;
static_assert(kGraphRows <= cuda::kLibraryRows);  // the library is not recorded
// Long enough for any context: beyond it sequences are split less.
constexpr int32_t kWorkspaceContext = 1 << 17;

int32_t power_of_two(int32_t n) {
  int32_t p = 1;
  while (p < n) p *= 2;
  return p;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaOptions& options, const cudaDeviceProp& properties)
      : options_(options),
        ordinal_(options.ordinal),
        name_("cuda:" + std::to_string(ordinal_) + " " + properties.name),
        numerics_("cuda-sm" + std::to_string(properties.major * 10 + properties.minor) +
                  " bf16, KV " + kernels::name(options.kv_type) + ", slice" +
                  std::to_string(cuda::kCudaSlice)),
        processors_(properties.multiProcessorCount),
        copies_(ordinal_),
        compute_(ordinal_),
        graphs_(ordinal_),
        counters_(allocate(static_cast<size_t>(cuda::attention_counters(processors_)) *
                           sizeof(uint32_t))) {
    if (!options.library) return;
    library_.emplace(ordinal_, allocate(cuda::LibraryRoom().bytes()));
    numerics_ += ", prompts by cuBLASLt " + std::to_string(library_->version());
  }

  ~CudaDevice() override { cudaSetDevice(ordinal_); }

  std::string name() const override { return name_; }
  std::string numerics() const override { return numerics_; }
  Activation activation(WeightType) const override { return Activation::kBf16; }
  KvType kv_type() const override { return options_.kv_type; }
  KvOrder kv_order() const override { return KvOrder::kRows; }
  Tiling tiling() const override { return Tiling::kFragments; }
  bool pairs() const override { return true; }
  bool host_visible() const override { return false; }
  std::unique_ptr<BlockCopies> block_copies(const KvPool& pool, uint32_t blocks) override {
    return std::make_unique<cuda::SlotCopies>(ordinal_, processors_, pool, blocks);
  }

  Buffer allocate(size_t bytes) override {
    return cuda::device_memory(ordinal_, bytes, copies_.stream());
  }
  std::optional<uint64_t> memory_free() const override {
    use();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), ordinal_, "its memory");
    return free > kCudaReserve ? free - kCudaReserve : 0;
  }
  Mirror mirror(size_t bytes) override {
    return {cuda::pinned_memory(ordinal_, bytes), allocate(bytes)};
  }
  void push(const Mirror& m, size_t bytes) override {
    copy(m.own.data(), m.host.data(), bytes, cudaMemcpyHostToDevice);
  }
  void pull(const Mirror& m, size_t bytes) override {
    copy(m.host.data(), m.own.data(), bytes, cudaMemcpyDeviceToHost);
  }
  void write(std::byte* to, std::span<const std::byte> from) override { copies_.write(to, from); }
  void read(std::span<std::byte> to, const std::byte* from) override { copies_.read(to, from); }

  // Sizes that a step's products take anyway: eights of rows, and of more than 64 a whole tile.
  int32_t padded(int32_t rows, bool decode) const override {
    if (!decode || !options_.graphs || rows > kGraphRows) return rows;
    if (rows <= 8) return power_of_two(rows);
    return rows <= 64 ? (rows + 7) / 8 * 8 : (rows + 63) / 64 * 64;
  }

  void forward(std::span<const StepRow> rows, int variant,
               const std::function<void()>& ops) override;
  void finish() override;

  void zero_blocks(const KvPool& pool, std::span<const uint32_t> blocks) override {
    use();
    const cuda::ZeroBlocks op{pool.base, pool.layout.block_bytes(), blocks.data(),
                              static_cast<uint32_t>(blocks.size())};
    check(cuda::enqueue(op, context(scratch_)), ordinal_, "blocks cannot be cleared");
  }
  void run(const Embed& op) override { put(op); }
  void run(const RmsNorm& op) override { put(op); }
  void run(const QuantizeRows&) override { KERNELS_CHECK(false && "products here take bf16"); }
  void run(const MatMul& op) override { put_product(op); }
  void run(const MatMulSwiGlu& op) override { put_product(op); }
  void run(const GatherRows& op) override { put(op); }
  void run(const RopeAppendKv& op) override { put(op); }
  void run(const SwiGlu& op) override { put(op); }
  void run(const AdjustLogits& op) override { put(op); }
  void run(const LogProbs& op) override { put(op, cuda::workspace_bytes(op)); }
  void run(const Sample& op) override { put(op, cuda::workspace_bytes(op)); }
  void run(const Attention& op) override;

  std::vector<OpAccount> take_accounts() override { return accounts_.take(); }

 private:
  // What attention was seen to be; the same in each step of a model.
  struct Geometry {
    int32_t heads;
    KvLayout kv;
  };
  struct Pending {
    const char* op;
    Cost cost;
  };

  void use() const { check(cudaSetDevice(ordinal_), ordinal_, "the device cannot be used"); }
  void copy(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind) {
    use();
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, kind, compute_.get()), ordinal_, "a copy of a step");
  }
  void account(const char* op, const Cost& cost) {
    if (pending_.empty()) begun_ = std::chrono::steady_clock::now();
    pending_.push_back({op, cost});
  }
  cuda::Context context(const Buffer& workspace) const {
    return {compute_.get(), processors_, workspace.data(), workspace.size()};
  }
  template <class Op>
  void put(const Op& op, size_t workspace = 0) {
    account(kernels::name(op), cost(op));
    if (repeats_) return;
    use();
    if (workspace > scratch_.size()) {
      compute_.wait();  // what is there may be in use
      scratch_ = allocate(workspace + workspace / 2);
    }
    check(cuda::enqueue(op, context(scratch_)), ordinal_, kernels::name(op));
  }
  template <class Op>
  void put_product(const Op& op) {
    Cost moved = cost(op);
    if (library_ && op.rows > cuda::kLibraryRows) {
      moved.activation_bytes += cuda::LibraryProducts::extra_bytes(op);
      account(kernels::name(op), moved);
      use();
      return check(library_->enqueue(op, context({})), ordinal_, kernels::name(op));
    }
    if (spread_.size() == 0 && !recording_ && cuda::may_spread(op.w, processors_)) {
      spread_ = allocate(cuda::kSpreadBytes + cuda::kSpreadCounters * sizeof(uint32_t));
    }
    if (spread_.size() > 0) moved.activation_bytes += cuda::spread_bytes(op, processors_);
    account(kernels::name(op), moved);
    if (repeats_) return;
    use();
    cuda::Context with = context(spread_);
    if (spread_.size() > 0)
      with.counters = reinterpret_cast<uint32_t*>(spread_.data() + cuda::kSpreadBytes);
    check(cuda::enqueue(op, with), ordinal_, kernels::name(op));
  }
  void plan(std::span<const StepRow> rows);
  std::optional<cuda::StepShape> shape(std::span<const StepRow> rows, int variant) const;

  const CudaOptions options_;
  const int ordinal_;
  const std::string name_;
  std::string numerics_;
  const int processors_;
  cuda::Copies copies_;
  cuda::Stream compute_;
  cuda::StepGraphs graphs_;
  Buffer scratch_;    // of what is not part of a forward pass
  Buffer workspace_;  // of attention
  Buffer counters_;   // of attention
  std::optional<cuda::LibraryProducts> library_;
  Buffer spread_;  // of products: sums of pieces, then counters; none: no model needed it yet
  Mirror tiles_;   // of attention's plan: chunks, then tiles
  std::optional<Geometry> geometry_;
  cuda::AttentionWork work_;  // of this step
  bool planned_ = false;
  bool repeats_ = false;  // a graph does what is told: it is only accounted for
  bool recording_ = false;
  std::vector<Pending> pending_;
  std::chrono::steady_clock::time_point begun_;
  Accounts accounts_;
};

// Attention's plan of a step, on its way to the device.
void CudaDevice::plan(std::span<const StepRow> rows) {
  const Geometry& g = *geometry_;
  const AttentionPlan plan = cuda::plan_attention(rows.data(), static_cast<int32_t>(rows.size()),
                                                  g.heads, g.kv, processors_, workspace_.size());
  const size_t count = plan.chunks.size() + plan.tiles.size();
  if (count * sizeof(AttentionTile) > tiles_.host.size()) {
    compute_.wait();
    graphs_.clear();  // they know the old place
    tiles_ = mirror(2 * count * sizeof(AttentionTile));
  }
  auto* const to = tiles_.as<AttentionTile>();
  std::copy(plan.tiles.begin(), plan.tiles.end(),
            std::copy(plan.chunks.begin(), plan.chunks.end(), to));
  push(tiles_, count * sizeof(AttentionTile));
  work_ = {.chunks = tiles_.device<AttentionTile>(),
           .chunk_count = static_cast<int32_t>(plan.chunks.size()),
           .tiles = tiles_.device<AttentionTile>() + plan.chunks.size(),
           .tile_count = static_cast<int32_t>(plan.tiles.size()),
           .spread = std::min(power_of_two(plan.spread), cuda::kAttentionSpreadMax),
           .counters = counters_.as<uint32_t>()};
  planned_ = true;
}

// Of a step that may be recorded: each row is of another sequence, or of none.
std::optional<cuda::StepShape> CudaDevice::shape(std::span<const StepRow> rows, int variant) const {
  const auto count = static_cast<int32_t>(rows.size());
  if (!options_.graphs || !planned_ || count > kGraphRows || padded(count, true) != count)
    return std::nullopt;
  for (size_t r = 1; r < rows.size(); r++)
    if (rows[r].blocks != nullptr && rows[r].blocks == rows[r - 1].blocks) return std::nullopt;
  return cuda::StepShape{.rows = count,
                         .variant = variant,
                         .chunks = work_.chunk_count,
                         .tiles = work_.tile_count,
                         .spread = work_.spread};
}

void CudaDevice::forward(std::span<const StepRow> rows, int variant,
                         const std::function<void()>& ops) {
  use();
  planned_ = false;
  if (geometry_) plan(rows);
  const auto step = shape(rows, variant);
  if (!step) return ops();  // also the very first one, which shows what attention is
  if (!graphs_.has(*step)) {
    recording_ = true;
    graphs_.record(*step, compute_.get(), ops);
    recording_ = false;
  } else {
    repeats_ = true;
    ops();
    repeats_ = false;
  }
  graphs_.start(*step, compute_.get());
}

void CudaDevice::run(const Attention& op) {
  account(kernels::name(op), cost(op));
  if (repeats_) return;
  if (!geometry_) {
    geometry_ = {op.heads, op.kv.layout};
    workspace_ = allocate(cuda::attention_workspace(op.kv.layout, kWorkspaceContext, processors_));
  }
  KERNELS_CHECK(geometry_->heads == op.heads && geometry_->kv == op.kv.layout);
  if (!planned_) plan({op.host_step, static_cast<size_t>(op.rows)});
  check(cuda::enqueue(op, work_, context(workspace_)), ordinal_, kernels::name(op));
}

// The time from the first operation to the end is shared out by what each had to move, since on the
// device they overlap.
void CudaDevice::finish() {
  use();
  compute_.wait();
  planned_ = false;
  if (pending_.empty()) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
  double bytes = 0;
  for (const Pending& p : pending_) bytes += static_cast<double>(p.cost.bytes());
  for (const Pending& p : pending_)
    accounts_.add(p.op, p.cost,
                  bytes > 0 ? took.count() * static_cast<double>(p.cost.bytes()) / bytes : 0);
  pending_.clear();
}

}  // namespace

bool cuda_is_built() { return true; }

int cuda_devices(std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    count = 0;
  }
  if (count == 0 && why)
    *why = error == cudaSuccess ? "the driver knows no GPU" : cudaGetErrorString(error);
  return count;
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  std::string why;
  const int count = cuda_devices(&why);
  const std::string title = "cuda:" + std::to_string(options.ordinal);
  if (count == 0) throw DeviceError(title + ": " + why);
  if (options.ordinal < 0 || options.ordinal >= count)
    throw DeviceError(title + ": there are " + std::to_string(count) + " GPUs, numbered from 0");
  if (options.kv_type == KvType::kF32)
    throw DeviceError(title + ": KV of f32 is for the CPU alone");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, options.ordinal), options.ordinal, "its properties");
  if (properties.major < 8)
    throw DeviceError(title + ": " + properties.name + " is older than sm_80");
  return std::make_unique<CudaDevice>(options, properties);
}

}  // namespace headrace::kernels
