#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/block_copies.h"
#include "kernels/buffer.h"
#include "kernels/ops.h"

namespace headrace::kernels {

// What one kind of operation has cost since the account was last taken.
struct OpAccount {
  const char* op = "";
  Cost cost;
  double seconds = 0;
  uint64_t runs = 0;
};

// The device does no more: its memory, its driver or itself failed. Who owns it ends.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// In which form products take their x.
enum class Activation : uint8_t { kF32, kBlocks, kBf16 };

// Executes operations one after the other. Used by one thread at a time (the engine's), but for
// allocate, write and read. Operations of a GPU are done by `finish`; its failures are thrown as
// DeviceError by any call from then on.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu avx512vnni, 2 threads"
  // What gives the same bits: workers of equal numerics may share KV and answers.
  virtual std::string numerics() const = 0;
  virtual Activation activation(WeightType weights) const = 0;
  virtual KvType kv_type() const = 0;
  virtual KvOrder kv_order() const { return KvOrder::kLanes; }
  virtual Tiling tiling() const { return Tiling::kLanes; }

  // Memory of the device, zeroed, 256-byte aligned on a GPU. Throws std::bad_alloc.
  virtual Buffer allocate(size_t bytes) { return Buffer(bytes); }
  // Bytes that may be had of it, with some left for the driver; none: it is the host's memory.
  virtual std::optional<uint64_t> memory_free() const { return std::nullopt; }
  virtual Mirror mirror(size_t bytes) { return {Buffer(bytes), {}}; }
  // The first `bytes` of a mirror, between the operations before and behind the call. The host's
  // half may be written again, and has what was pulled, after finish().
  virtual void push(const Mirror&, size_t /*bytes*/) {}
  virtual void pull(const Mirror&, size_t /*bytes*/) {}
  // Copies to and from memory of the device that no operation under way uses; done on return.
  virtual void write(std::byte* to, std::span<const std::byte> from);
  virtual void read(std::span<std::byte> to, const std::byte* from);
  // The host may read and write the device's memory as its own.
  virtual bool host_visible() const { return true; }
  // For the pool's `blocks` blocks, where the host cannot; else null. Throws std::bad_alloc.
  virtual std::unique_ptr<BlockCopies> block_copies(const KvPool& /*pool*/, uint32_t /*blocks*/) {
    return nullptr;
  }

  // How many rows a forward pass of `rows` should have; the others are padding. `decode`: each row
  // is of another sequence.
  virtual int32_t padded(int32_t rows, bool /*decode*/) const { return rows; }
  // A whole forward pass: `ops` runs its operations, the same ones in the same memory whenever
  // `rows` are as many and `variant` is the same. `rows`: its rows on the host, valid until
  // finish().
  virtual void forward(std::span<const StepRow> /*rows*/, int /*variant*/,
                       const std::function<void()>& ops) {
    ops();
  }
  virtual void finish() {}

  virtual void zero_blocks(const KvPool& pool, std::span<const uint32_t> blocks);
  virtual void run(const Embed& op) = 0;
  virtual void run(const RmsNorm& op) = 0;
  virtual void run(const QuantizeRows& op) = 0;
  virtual void run(const MatMul& op) = 0;
  virtual void run(const GatherRows& op) = 0;
  virtual void run(const RopeAppendKv& op) = 0;
  virtual void run(const Attention& op) = 0;
  virtual void run(const SwiGlu& op) = 0;
  virtual void run(const AdjustLogits& op) = 0;
  virtual void run(const LogProbs& op) = 0;
  virtual void run(const Sample& op) = 0;
  // Only where the device takes paired matrices.
  virtual bool pairs() const { return false; }
  virtual void run(const MatMulSwiGlu& op);
  // Here one after the other.
  virtual void run(const MatMulRope& op);

  // Keeps each of its threads, the caller first, on a processor of its own; false: it cannot.
  virtual bool pin_threads() { return false; }

  // Accounts by operation since the last call; then they begin anew.
  virtual std::vector<OpAccount> take_accounts() = 0;
};

// Instruction sets of the CPU bodies, slowest first. All give the same bits.
// kAmx is kAvx512Vnni but for products of several rows.
enum class CpuPath : uint8_t { kPortable, kAvx2, kAvx512Vnni, kAmx };
inline constexpr CpuPath kCpuPaths[] = {CpuPath::kPortable, CpuPath::kAvx2, CpuPath::kAvx512Vnni,
                                        CpuPath::kAmx};
const char* name(CpuPath path);  // "portable", "avx2", "avx512vnni", "amx"
std::optional<CpuPath> parse_cpu_path(const std::string& text);
bool supported(CpuPath path);  // by this processor and kernel
CpuPath best_cpu_path();

// What the KV of a GPU may be made of. The CPU has the first alone, the reference device kF32.
inline constexpr KvType kKvTypes[] = {KvType::kF16, KvType::kBf16, KvType::kFp8, KvType::kInt8};
std::optional<KvType> parse_kv_type(const std::string& text);  // one of these

// threads <= 0: all that this process may use.
std::unique_ptr<Device> make_cpu_device(CpuPath path, int threads);
// Everything on the references: f32 activations, f32 KV. threads as above.
std::unique_ptr<Device> make_reference_device(int threads = 0);

}  // namespace headrace::kernels
