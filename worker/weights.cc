#include "worker/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

using kernels::Matrix;

constexpr uint64_t kReadBytes = uint64_t{256} << 10;  // source bytes of one piece of work
constexpr size_t kAlign = 64;

// A matrix in the making: tensors of one type, one below the other.
struct Target {
  std::vector<const GgufTensor*> sources;
  Matrix matrix;
  size_t offset = 0;  // in the memory of all weights
};

// Some tiles of one target.
struct Piece {
  const Target* target;
  int32_t first, last;  // tiles
};

// Lays out all weights, then fills them.
class Loader {
 public:
  explicit Loader(const ModelFile& model) : model_(model), gguf_(model.gguf()) {}

  Result<Weights> load(int threads, const std::function<void(double)>& progress) {
    plan();
    try {
      weights_.memory = kernels::Buffer(bytes_);
    } catch (const std::bad_alloc&) {
      return error(Errc::kOverloaded, gguf_.file().path() + ": no memory for " +
                                          std::to_string(bytes_ >> 20) + " MiB of weights");
    }
    place();
    if (Status s = read_norms(); !s.ok()) return s;
    if (Status s = pack_all(threads, progress); !s.ok()) return s;
    if (Status s = gguf_.file().unchanged(); !s.ok()) return s;
    return std::move(weights_);
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  // Where a Projection's parts and a norm's gains will be found.
  struct Slot {
    Projection* projection;
    std::vector<size_t> targets;
  };
  struct Norm {
    const float** gain;
    const GgufTensor* source;
    size_t offset;
  };

  const GgufTensor* tensor(const std::string& name) const {
    const GgufTensor* t = gguf_.tensor(name);
    CHECK(t != nullptr);  // read_config has seen it
    return t;
  }

  size_t add_target(std::vector<const GgufTensor*> sources) {
    Target t;
    uint64_t rows = 0;
    for (const GgufTensor* s : sources) rows += s->rows();
    const uint64_t cols = sources[0]->cols();
    t.matrix = {.type = kernels::packed_type(sources[0]->type),
                .rows = static_cast<int32_t>(rows),
                .cols = static_cast<int32_t>(cols),
                .data = nullptr};
    t.sources = std::move(sources);
    t.offset = bytes_;
    bytes_ += kernels::packed_bytes(t.matrix.type, t.matrix.rows, t.matrix.cols);
    targets_.push_back(std::move(t));
    return targets_.size() - 1;
  }

  // One target where all types agree, else one each.
  void add(Projection& projection, const std::vector<std::string>& names) {
    std::vector<const GgufTensor*> sources;
    for (const std::string& n : names) sources.push_back(tensor(n));
    const bool alike = std::all_of(sources.begin(), sources.end(), [&](const GgufTensor* t) {
      return t->type == sources[0]->type;
    });
    Slot slot{&projection, {}};
    if (alike)
      slot.targets.push_back(add_target(sources));
    else
      for (const GgufTensor* t : sources) slot.targets.push_back(add_target({t}));
    slots_.push_back(std::move(slot));
  }

  void add_norm(const float*& gain, const std::string& name) {
    const GgufTensor* t = tensor(name);
    norms_.push_back({&gain, t, bytes_});
    bytes_ += (t->bytes + kAlign - 1) / kAlign * kAlign;
  }

  // In the order in which a step reads.
  void plan() {
    const LlamaConfig& c = model_.config();
    weights_.layers.resize(c.layers);
    for (uint32_t i = 0; i < c.layers; i++) {
      LayerWeights& layer = weights_.layers[i];
      const std::string at = "blk." + std::to_string(i) + ".";
      add_norm(layer.attention_norm, at + "attn_norm.weight");
      add(layer.qkv, {at + "attn_q.weight", at + "attn_k.weight", at + "attn_v.weight"});
      add(layer.out, {at + "attn_output.weight"});
      add_norm(layer.ffn_norm, at + "ffn_norm.weight");
      add(layer.gate_up, {at + "ffn_gate.weight", at + "ffn_up.weight"});
      add(layer.down, {at + "ffn_down.weight"});
    }
    add_norm(weights_.output_norm, "output_norm.weight");
    if (!c.tied) add(weights_.output, {"output.weight"});
    embedding_ = add_target({tensor("token_embd.weight")});
  }

  void place() {
    for (Target& t : targets_) t.matrix.data = weights_.memory.data() + t.offset;
    for (const Slot& s : slots_)
      for (const size_t i : s.targets) {
        s.projection->parts.push_back({targets_[i].matrix, s.projection->rows});
        s.projection->rows += static_cast<uint32_t>(targets_[i].matrix.rows);
      }
    weights_.embedding = targets_[embedding_].matrix;
    if (model_.config().tied)
      weights_.output = {.parts = {{weights_.embedding, 0}}, .rows = model_.config().vocab};
  }

  Status not_finite(const GgufTensor& t) const {
    return error(Errc::kNumeric,
                 gguf_.file().path() + ": tensor " + t.name + " holds NaN or infinity");
  }

  Status read_norms() {
    for (const Norm& n : norms_) {
      const std::span<std::byte> to(weights_.memory.data() + n.offset, n.source->bytes);
      if (Status s = gguf_.file().read(n.source->offset, to); !s.ok()) return s;
      if (!kernels::finite(n.source->type, to)) return not_finite(*n.source);
      *n.gain = reinterpret_cast<const float*>(to.data());
    }
    return {};
  }

  std::vector<Piece> pieces() const {
    std::vector<Piece> out;
    for (const Target& t : targets_) {
      const uint64_t tile =
          kernels::kTileRows * kernels::source_row_bytes(t.sources[0]->type, t.matrix.cols);
      const auto step = static_cast<int32_t>(std::clamp<uint64_t>(kReadBytes / tile, 1, 1024));
      for (int32_t at = 0; at < t.matrix.tiles(); at += step)
        out.push_back({&t, at, std::min(at + step, t.matrix.tiles())});
    }
    return out;
  }

  // Reads the rows of a piece, which may span several tensors, then packs its tiles one by one.
  Status pack(const Piece& piece, std::vector<std::byte>& scratch) const {
    const Target& t = *piece.target;
    const kernels::SourceType type = t.sources[0]->type;
    const uint64_t row_bytes = kernels::source_row_bytes(type, t.matrix.cols);
    const auto begin = static_cast<uint64_t>(piece.first) * kernels::kTileRows;
    const auto end = std::min(static_cast<uint64_t>(piece.last) * kernels::kTileRows,
                              static_cast<uint64_t>(t.matrix.rows));
    scratch.resize((end - begin) * row_bytes);
    uint64_t top = 0;  // first row of a source in the target
    for (const GgufTensor* source : t.sources) {
      const uint64_t from = std::max(begin, top), to = std::min(end, top + source->rows());
      if (from < to) {
        const std::span<std::byte> rows(scratch.data() + (from - begin) * row_bytes,
                                        (to - from) * row_bytes);
        if (Status s = gguf_.file().read(source->offset + (from - top) * row_bytes, rows); !s.ok())
          return s;
        if (!kernels::finite(type, rows)) return not_finite(*source);
      }
      top += source->rows();
    }
    for (int32_t tile = piece.first; tile < piece.last; tile++) {
      const auto row = static_cast<uint64_t>(tile) * kernels::kTileRows;
      const auto rows = static_cast<int32_t>(std::min<uint64_t>(kernels::kTileRows, end - row));
      std::byte* to =
          weights_.memory.data() + t.offset + t.matrix.tile_bytes() * static_cast<size_t>(tile);
      kernels::pack_tile(type, scratch.data() + (row - begin) * row_bytes, rows, t.matrix.cols, 0,
                         to);
    }
    return {};
  }

  Status pack_all(int threads, const std::function<void(double)>& progress) {
    const std::vector<Piece> work = pieces();
    std::atomic<size_t> next = 0;
    std::mutex mutex;  // guards what follows
    Status status;
    size_t done = 0;
    const auto run = [&] {
      std::vector<std::byte> scratch;
      for (size_t i; (i = next.fetch_add(1)) < work.size();) {
        Status s = pack(work[i], scratch);
        const std::lock_guard lock(mutex);
        if (!s.ok()) {
          if (status.ok()) status = std::move(s);
          next = work.size();
        }
        done++;
        if (progress) progress(static_cast<double>(done) / static_cast<double>(work.size()));
      }
    };
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const size_t n = std::min<size_t>(threads > 0 ? static_cast<size_t>(threads) : cores, 256);
    std::vector<std::thread> pool;
    for (size_t i = 1; i < std::min(n, work.size()); i++) pool.emplace_back(run);
    run();
    for (std::thread& t : pool) t.join();
    return status;
  }

  const ModelFile& model_;
  const GgufFile& gguf_;
  Weights weights_;
  size_t bytes_ = 0;
  std::vector<Target> targets_;
  std::vector<Slot> slots_;
  std::vector<Norm> norms_;
  size_t embedding_ = kNone;
};

}  // namespace

bool Projection::any_quantized() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& p) { return kernels::quantized(p.matrix.type); });
}

bool Projection::any_float() const {
  return !std::all_of(parts.begin(), parts.end(),
                      [](const Part& p) { return kernels::quantized(p.matrix.type); });
}

Result<Weights> load_weights(const ModelFile& model, int threads,
                             const std::function<void(double)>& progress) {
  return Loader(model).load(threads, progress);
}

}  // namespace headrace::worker
