#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace headrace::kernels {

// Memory of a device, 64-byte aligned and zeroed; huge pages advised on the CPU. Move-only. Large
// buffers are mapped untouched: what is never used takes no memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // throws std::bad_alloc
  ~Buffer();
  Buffer(Buffer&& o) noexcept;
  Buffer& operator=(Buffer&& o) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// What one kind of operation has cost since the account was last taken.
struct OpAccount {
  const char* op = "";
  Cost cost;
  double seconds = 0;
  uint64_t runs = 0;
};

// Executes operations one after the other. Used by one thread at a time (the engine's).
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu avx512vnni, 2 threads"
  // Products with quantized weights take blocks; else everything stays f32.
  virtual bool quantizes() const = 0;
  virtual KvType kv_type() const = 0;

  virtual void run(const Embed& op) = 0;
  virtual void run(const RmsNorm& op) = 0;
  virtual void run(const QuantizeRows& op) = 0;
  virtual void run(const MatMul& op) = 0;
  virtual void run(const RopeAppendKv& op) = 0;
  virtual void run(const Attention& op) = 0;
  virtual void run(const SwiGlu& op) = 0;
  virtual void run(const AdjustLogits& op) = 0;
  virtual void run(const LogProbs& op) = 0;
  virtual void run(const Sample& op) = 0;

  // Accounts by operation since the last call; then they begin anew.
  virtual std::vector<OpAccount> take_accounts() = 0;
};

// Instruction sets of the CPU bodies, slowest first. All give the same bits.
enum class CpuPath : uint8_t { kPortable, kAvx2, kAvx512Vnni };
const char* name(CpuPath path);  // "portable", "avx2", "avx512vnni"
std::optional<CpuPath> parse_cpu_path(const std::string& text);
bool supported(CpuPath path);  // by this processor and kernel
CpuPath best_cpu_path();

// threads <= 0: all that this process may use.
std::unique_ptr<Device> make_cpu_device(CpuPath path, int threads);
// Everything on the references: f32 activations, f32 KV. threads as above.
std::unique_ptr<Device> make_reference_device(int threads = 0);

}  // namespace headrace::kernels
