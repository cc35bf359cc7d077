#include "worker/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "kernels/matrix_fragments.h"
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
  // `device` may be null: see load_weights.
  Loader(const ModelFile& model, kernels::Device* device)
      : model_(model), gguf_(model.gguf()), device_(device) {}

  Result<Weights> load(int threads, const std::function<void(double)>& progress) {
    plan();
    try {
      weights_.memory = device_ ? device_->allocate(bytes_) : kernels::Buffer(bytes_);
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

  bool fragments() const { return device_ && device_->tiling() == kernels::Tiling::kFragments; }
  // Rows that are packed together.
  int32_t tile_rows() const { return fragments() ? kernels::kStripRows : kernels::kTileRows; }
  int32_t tiles(const Matrix& m) const { return (m.rows + tile_rows() - 1) / tile_rows(); }

  size_t add_target(std::vector<const GgufTensor*> sources) {
    Target t;
    uint64_t rows = 0;
    for (const GgufTensor* s : sources) rows += s->rows();
    const uint64_t cols = sources[0]->cols();
    t.matrix = {.type = kernels::packed_type(sources[0]->type),
                .rows = static_cast<int32_t>(rows),
                .cols = static_cast<int32_t>(cols),
                .data = nullptr,
                .tiling = fragments() ? kernels::Tiling::kFragments : kernels::Tiling::kLanes};
    t.sources = std::move(sources);
    t.offset = bytes_;
    bytes_ += (t.matrix.bytes() + kAlign - 1) / kAlign * kAlign;
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

  void add_pair(Projection& projection, const std::string& gate, const std::string& up) {
    add(projection, {gate, up});
    Matrix& m = targets_.back().matrix;
    const bool one = slots_.back().targets.size() == 1;
    // In both halves of whole tiles, or of whole halves of strips.
    const int32_t whole = fragments() ? kernels::kStripRows : 2 * kernels::kTileRows;
    m.paired = one && device_ && device_->pairs() && m.rows % whole == 0;
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
      add_pair(layer.gate_up, at + "ffn_gate.weight", at + "ffn_up.weight");
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

  bool in_place() const { return !device_ || device_->host_visible(); }

  Status read_norms() {
    std::vector<std::byte> copy;
    for (const Norm& n : norms_) {
      std::byte* const at = weights_.memory.data() + n.offset;
      if (!in_place()) copy.resize(n.source->bytes);
      const std::span<std::byte> to(in_place() ? at : copy.data(), n.source->bytes);
      if (Status s = gguf_.file().read(n.source->offset, to); !s.ok()) return s;
      if (!kernels::finite(n.source->type, to)) return not_finite(*n.source);
      if (!in_place()) device_->write(at, to);
      *n.gain = reinterpret_cast<const float*>(at);
    }
    return {};
  }

  std::vector<Piece> pieces() const {
    std::vector<Piece> out;
    for (const Target& t : targets_) {
      const uint64_t tile = static_cast<uint64_t>(tile_rows()) *
                            kernels::source_row_bytes(t.sources[0]->type, t.matrix.cols);
      auto step = static_cast<int32_t>(std::clamp<uint64_t>(kReadBytes / tile, 1, 1024));
      if (t.matrix.paired) step += step % 2;
      for (int32_t at = 0; at < tiles(t.matrix); at += step)
        out.push_back({&t, at, std::min(at + step, tiles(t.matrix))});
    }
    return out;
  }

  struct Scratch {
    std::vector<std::byte> rows, packed;
  };

  // Reads rows [begin, end) of a target, which may span several tensors, behind what is in `to`.
  Status read_rows(const Target& t, uint64_t begin, uint64_t end,
                   std::vector<std::byte>& to) const {
    const kernels::SourceType type = t.sources[0]->type;
    const uint64_t row_bytes = kernels::source_row_bytes(type, t.matrix.cols);
    const size_t first = to.size();
    to.resize(first + (end - begin) * row_bytes);
    uint64_t top = 0;  // first row of a source in the target
    for (const GgufTensor* source : t.sources) {
      const uint64_t from = std::max(begin, top), until = std::min(end, top + source->rows());
      if (from < until) {
        const std::span<std::byte> rows(to.data() + first + (from - begin) * row_bytes,
                                        (until - from) * row_bytes);
        if (Status s = gguf_.file().read(source->offset + (from - top) * row_bytes, rows); !s.ok())
          return s;
        if (!kernels::finite(type, rows)) return not_finite(*source);
      }
      top += source->rows();
    }
    return {};
  }

  // The rows of a piece, in the order in which they are packed: of a paired matrix, those of the
  // upper half, then as many of the lower.
  Status read_piece(const Piece& piece, std::vector<std::byte>& to) const {
    const Matrix& m = piece.target->matrix;
    const auto step = static_cast<uint64_t>(m.paired ? tile_rows() / 2 : tile_rows());
    const auto rows = static_cast<uint64_t>(m.paired ? m.rows / 2 : m.rows);
    const uint64_t begin = static_cast<uint64_t>(piece.first) * step;
    const uint64_t end = std::min(static_cast<uint64_t>(piece.last) * step, rows);
    to.clear();
    if (Status s = read_rows(*piece.target, begin, end, to); !s.ok() || !m.paired) return s;
    return read_rows(*piece.target, rows + begin, rows + end, to);
  }

  // Each piece is packed as a small matrix of its own.
  Status pack(const Piece& piece, Scratch& scratch) const {
    const Matrix& m = piece.target->matrix;
    const kernels::SourceType type = piece.target->sources[0]->type;
    if (Status s = read_piece(piece, scratch.rows); !s.ok()) return s;
    const auto rows =
        static_cast<int32_t>(scratch.rows.size() / kernels::source_row_bytes(type, m.cols));
    const int32_t count = piece.last - piece.first;
    const size_t tile_bytes = m.bytes() / static_cast<size_t>(tiles(m));
    std::byte* const to = weights_.memory.data() + piece.target->offset +
                          tile_bytes * static_cast<size_t>(piece.first);
    if (!in_place()) scratch.packed.resize(tile_bytes * static_cast<size_t>(count));
    std::byte* const packed = in_place() ? to : scratch.packed.data();
    for (int32_t i = 0; i < count; i++) {
      if (m.tiling == kernels::Tiling::kFragments)
        kernels::pack_strip(type, scratch.rows.data(), rows, m.cols, m.paired, i, packed);
      else
        kernels::pack_tile(type, scratch.rows.data(), rows, m.cols, m.paired, i, packed);
    }
    if (!in_place()) device_->write(to, scratch.packed);
    return {};
  }

  Status pack_all(int threads, const std::function<void(double)>& progress) {
    const std::vector<Piece> work = pieces();
    std::atomic<size_t> next = 0;
    std::mutex mutex;  // guards what follows
    Status status;
    size_t done = 0;
    const auto run = [&] {
      Scratch scratch;
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
  kernels::Device* device_;
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
                             const std::function<void(double)>& progress, kernels::Device* device) {
  return Loader(model, device).load(threads, progress);
}

}  // namespace headrace::worker
