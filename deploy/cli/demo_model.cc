#include "deploy/cli/demo_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/cli/machine.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "kernels/half.h"

namespace headrace::cli {

namespace {

constexpr uint64_t kDemoWorkingMemory = uint64_t{256} << 20;  // activations, logits, threads
constexpr uint64_t kGgufAlignment = 32;
constexpr size_t kNoiseBytes = size_t{1} << 20;
constexpr uint64_t kNoiseSeed = 0x9e3779b97f4a7c15;

// Numbers of the GGUF specification: types of metadata and of tensors.
constexpr uint32_t kEntryUint32 = 4, kEntryFloat32 = 6, kEntryString = 8, kEntryArray = 9;
uint32_t gguf_number(kernels::SourceType type) {
  switch (type) {
    case kernels::SourceType::kQ4_0:
      return 2;
    case kernels::SourceType::kQ8_0:
      return 8;
    case kernels::SourceType::kBf16:
      return 30;
    default:
      return 0;  // f32
  }
}

struct DemoTensor {
  std::string name;
  uint32_t rows = 1, cols = 0;
  kernels::SourceType type = kernels::SourceType::kF32;
  uint64_t bytes() const { return rows * kernels::source_row_bytes(type, cols); }
};

std::vector<DemoTensor> tensors_of(const DemoShape& s) {
  std::vector<DemoTensor> all;
  const auto matrix = [&](const std::string& name, uint32_t rows, uint32_t cols) {
    all.push_back({name, rows, cols, s.type});
  };
  const auto gains = [&](const std::string& name) { all.push_back({name, 1, s.dim}); };
  matrix("token_embd.weight", s.vocab, s.dim);
  for (uint32_t i = 0; i < s.layers; i++) {
    const std::string at = "blk." + std::to_string(i) + ".";
    gains(at + "attn_norm.weight");
    matrix(at + "attn_q.weight", s.heads * s.head_dim, s.dim);
    matrix(at + "attn_k.weight", s.kv_heads * s.head_dim, s.dim);
    matrix(at + "attn_v.weight", s.kv_heads * s.head_dim, s.dim);
    matrix(at + "attn_output.weight", s.dim, s.heads * s.head_dim);
    gains(at + "ffn_norm.weight");
    matrix(at + "ffn_gate.weight", s.ffn, s.dim);
    matrix(at + "ffn_up.weight", s.ffn, s.dim);
    matrix(at + "ffn_down.weight", s.dim, s.ffn);
  }
  gains("output_norm.weight");
  return all;
}

// What stands before the weights.
class GgufHead {
 public:
  void text(const std::string& key, const std::string& value) {
    begin(key, kEntryString);
    string(value);
  }
  void integer(const std::string& key, uint32_t value) {
    begin(key, kEntryUint32);
    raw(value);
  }
  void number(const std::string& key, float value) {
    begin(key, kEntryFloat32);
    raw(value);
  }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    begin(key, kEntryArray);
    raw(kEntryString);
    raw(uint64_t{values.size()});
    for (const std::string& value : values) string(value);
  }
  std::string finish(const std::vector<DemoTensor>& tensors) {
    std::string entries = std::exchange(bytes_, "GGUF");
    raw(uint32_t{3});
    raw(uint64_t{tensors.size()});
    raw(entry_count_);
    bytes_ += entries;
    uint64_t at = 0;
    for (const DemoTensor& t : tensors) {
      string(t.name);
      raw(uint32_t{t.rows > 1 ? 2u : 1u});
      raw(uint64_t{t.cols});
      if (t.rows > 1) raw(uint64_t{t.rows});
      raw(gguf_number(t.type));
      raw(at);
      at += (t.bytes() + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
    }
    bytes_.resize((bytes_.size() + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment);
    return std::move(bytes_);
  }

 private:
  template <class T>
  void raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(const std::string& value) {
    raw(uint64_t{value.size()});
    bytes_ += value;
  }
  void begin(const std::string& key, uint32_t type) {
    string(key);
    raw(type);
    entry_count_++;
  }
  std::string bytes_;
  uint64_t entry_count_ = 0;
};

std::string head_of(const DemoShape& s, const std::vector<DemoTensor>& tensors) {
  GgufHead head;
  head.text("general.architecture", "llama");
  head.text("general.name", "made up");
  head.integer("llama.block_count", s.layers);
  head.integer("llama.context_length", s.context);
  head.integer("llama.embedding_length", s.dim);
  head.integer("llama.feed_forward_length", s.ffn);
  head.integer("llama.attention.head_count", s.heads);
  head.integer("llama.attention.head_count_kv", s.kv_heads);
  head.integer("llama.attention.key_length", s.head_dim);
  head.integer("llama.attention.value_length", s.head_dim);
  head.integer("llama.rope.dimension_count", s.head_dim);
  head.number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  head.text("tokenizer.ggml.model", "gpt2");
  head.text("tokenizer.ggml.pre", "gpt-2");
  std::vector<std::string> tokens;
  for (uint32_t i = 0; i < s.vocab; i++) tokens.push_back("w" + std::to_string(i));
  head.texts("tokenizer.ggml.tokens", tokens);
  head.texts("tokenizer.ggml.merges", {});
  head.integer("tokenizer.ggml.eos_token_id", 0);
  return head.finish(tensors);
}

// Fills a row of a matrix so that unit inputs make sums of about 1: no layer's numbers grow.
class Noise {
 public:
  void row(const DemoTensor& t, std::byte* to) {
    const double wanted = 1 / std::sqrt(t.cols);  // root mean square of a weight
    const size_t bytes = kernels::source_row_bytes(t.type, t.cols);
    if (t.type == kernels::SourceType::kF32) {
      for (uint32_t i = 0; i < t.cols; i++) put(to + 4 * i, 1.0f);
    } else if (t.type == kernels::SourceType::kBf16) {
      // Sign and fraction at random under one exponent: magnitudes of 1 to 2 times a power of two.
      const auto power = static_cast<float>(std::exp2(std::round(std::log2(wanted / 1.5))));
      random(to, bytes, 0x807f807f807f807f,
             kernels::float_to_bf16(power) * uint64_t{0x0001000100010001});
    } else {
      random(to, bytes, ~uint64_t{0}, 0);
      const bool four = t.type == kernels::SourceType::kQ4_0;
      // Root mean square of uniform values of -8 to 7 and of -128 to 127.
      const uint16_t scale =
          kernels::float_to_half(static_cast<float>(wanted / (four ? 4.64 : 73.9)));
      for (size_t i = 0; i < bytes; i += four ? 18 : 34) put(to + i, scale);
    }
  }

 private:
  template <class T>
  static void put(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
  }
  void random(std::byte* to, size_t bytes, uint64_t mask, uint64_t always) {
    for (size_t i = 0; i < bytes; i += 8) {
      state_ ^= state_ << 13;
      state_ ^= state_ >> 7;
      state_ ^= state_ << 17;
      const uint64_t word = (state_ & mask) | always;
      std::memcpy(to + i, &word, std::min<size_t>(8, bytes - i));
    }
  }
  uint64_t state_ = kNoiseSeed;
};

Status write_all(int fd, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return error(Errc::kOverloaded,
                   std::string("no memory for made-up weights: ") + std::strerror(errno));
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return {};
}

Status write_tensor(int fd, const DemoTensor& t, Noise& noise) {
  const size_t row = kernels::source_row_bytes(t.type, t.cols);
  const auto rows_at_once = static_cast<uint32_t>(std::max<size_t>(1, kNoiseBytes / row));
  std::vector<std::byte> rows;
  for (uint32_t at = 0; at < t.rows; at += rows_at_once) {
    const uint32_t n = std::min(rows_at_once, t.rows - at);
    rows.resize(n * row);
    for (uint32_t i = 0; i < n; i++) noise.row(t, rows.data() + i * row);
    if (Status s = write_all(fd, rows.data(), rows.size()); !s.ok()) return s;
  }
  const std::string fill((kGgufAlignment - t.bytes() % kGgufAlignment) % kGgufAlignment, '\0');
  return write_all(fd, fill.data(), fill.size());
}

}  // namespace

uint64_t DemoShape::weights() const {
  uint64_t sum = 0;
  for (const DemoTensor& t : tensors_of(*this))
    if (t.rows > 1) sum += uint64_t{t.rows} * t.cols;
  return sum;
}

uint64_t DemoShape::matrix_bytes() const {
  uint64_t sum = 0;
  for (const DemoTensor& t : tensors_of(*this))
    if (t.rows > 1) sum += t.bytes();
  return sum;
}

DemoModel::DemoModel(DemoModel&& o) noexcept : fd_(std::exchange(o.fd_, -1)), bytes_(o.bytes_) {}

DemoModel::~DemoModel() {
  if (fd_ >= 0) close(fd_);
}

Result<DemoModel> DemoModel::make(const DemoShape& shape) {
  DemoModel model(memfd_create("headrace-demo", MFD_CLOEXEC));
  if (model.fd_ < 0)
    return error(Errc::kOverloaded,
                 std::string("no memory for made-up weights: ") + std::strerror(errno));
  const std::vector<DemoTensor> tensors = tensors_of(shape);
  const std::string head = head_of(shape, tensors);
  if (Status s = write_all(model.fd_, head.data(), head.size()); !s.ok()) return s;
  Noise noise;
  for (const DemoTensor& t : tensors)
    if (Status s = write_tensor(model.fd_, t, noise); !s.ok()) return s;
  model.bytes_ = static_cast<uint64_t>(lseek(model.fd_, 0, SEEK_CUR));
  return model;
}

std::string DemoModel::path() const { return "/proc/self/fd/" + std::to_string(fd_); }

void DemoModel::empty() {
  bytes_ = 0;
  if (ftruncate(fd_, 0) != 0) say("the made-up weights stay in memory twice");
}

uint64_t demo_memory(const DemoShape& shape, uint32_t blocks) {
  const uint64_t token = uint64_t{4} * shape.layers * shape.kv_heads * shape.head_dim;  // f16 K, V
  const uint64_t kv = blocks * kDemoBlockTokens * token;
  return 2 * (shape.matrix_bytes() + kv) + kDemoWorkingMemory;
}

Result<std::unique_ptr<worker::ModelEngine>> make_demo_engine(const DemoShape& shape,
                                                              const std::string& device,
                                                              int threads, uint32_t blocks) {
  const uint64_t needed = demo_memory(shape, blocks), there = memory_available();
  if (there < needed)
    return error(Errc::kOverloaded, "the demo needs " + human_bytes(static_cast<double>(needed)) +
                                        " of memory, " + human_bytes(static_cast<double>(there)) +
                                        " are available");
  auto made = make_device(device, threads);
  if (!made) return made.error();
  auto model = DemoModel::make(shape);
  if (!model) return model.error();
  auto file = worker::ModelFile::open(model->path());
  if (!file) return file.error();
  worker::EngineOptions options;
  options.block_tokens = kDemoBlockTokens;
  options.blocks = blocks;
  options.load_threads = threads;
  auto engine = worker::ModelEngine::create(*file, std::move(*made), options);
  if (engine) model->empty();
  return engine;
}

}  // namespace headrace::cli
