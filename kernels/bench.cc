#include "kernels/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/check.h"

namespace headrace::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRunsMin = 5;
constexpr int32_t kBlockTokens = 32;

uint64_t next(uint64_t& state) {  // Marsaglia's xorshift: any bits will do
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// Small positive numbers of a type, `count` bytes of them: f16 and bf16 read 0x2c00..0x2fff.
void fill_numbers(std::byte* to, size_t bytes, bool f32, uint64_t& state) {
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    const auto r = static_cast<uint32_t>(next(state));
    const uint32_t v = f32 ? 0x3d000000u | (r & 0x7fffffu) : 0x2c002c00u | (r & 0x03ff03ffu);
    std::memcpy(to + i, &v, 4);
  }
}

void fill_weights(WeightType type, std::byte* to, size_t bytes, uint64_t& state) {
  if (!quantized(type)) return fill_numbers(to, bytes, type == WeightType::kF32, state);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t r = next(state);
    std::memcpy(to + i, &r, 8);
  }
  const size_t head = type == WeightType::kW4Min ? 128 : 64;  // scales and minima
  for (size_t u = 0; u + unit_bytes(type) <= bytes; u += unit_bytes(type))
    fill_numbers(to + u, head, false, state);
}

// Copies of one matrix, visited in turn.
class Ring {
 public:
  Ring(WeightType type, int32_t rows, int32_t cols, uint64_t working_set)
      : matrix_{type, rows, cols, nullptr},
        count_(std::max<uint64_t>(1, working_set / std::max<size_t>(matrix_.bytes(), 1))),
        memory_(matrix_.bytes() * count_) {
    uint64_t state = 88172645463325252u;
    fill_weights(type, memory_.data(), memory_.size(), state);
  }
  Matrix turn() {
    matrix_.data = memory_.data() + matrix_.bytes() * (at_++ % count_);
    return matrix_;
  }
  uint64_t bytes() const { return memory_.size(); }

 private:
  Matrix matrix_;
  uint64_t count_;
  Buffer memory_;
  uint64_t at_ = 0;
};

class Bench {
 public:
  Bench(const BenchOptions& options, const std::function<void(double)>& progress)
      : o_(options), progress_(progress), device_(make_cpu_device(options.path, options.threads)) {
    KERNELS_CHECK(!o_.rows.empty());
    most_ = *std::max_element(o_.rows.begin(), o_.rows.end());
    const BenchShape& s = o_.shape;
    const int32_t widest = std::max({s.dim, 2 * s.ffn, (s.heads + 2 * s.kv_heads) * s.head_dim});
    width_ = (widest + 31) / 32 * 32;
    x_ = floats(most_, width_);
    y_ = floats(most_, std::max(width_, s.vocab));
    q_ = Buffer(static_cast<size_t>(most_) * static_cast<size_t>(width_ / 32) * sizeof(QuantBlock));
    gain_ = floats(1, width_);
    device_->run(QuantizeRows{x_.as<float>(), most_, width_, q_.as<QuantBlock>()});
  }

  BenchReport run() {
    BenchReport report;
    report.device = device_->name();
    const double limits = o_.part == BenchPart::kLimits ? 1 : 0.2;  // share of the time
    report.limits = measure_cpu_limits(o_.path, o_.threads, o_.seconds * limits, o_.working_set,
                                       [&](double p) { progress_(p * limits); });
    limits_ = &report.limits;
    // Thirteen operations for each number of rows; with attention comes what writes its KV.
    const double operations = o_.part == BenchPart::kAttention ? 2 : 13;
    each_ = o_.seconds * (1 - limits) / (operations * static_cast<double>(o_.rows.size()));
    step_ = (1 - limits) / (operations * static_cast<double>(o_.rows.size()));
    done_ = limits;
    if (o_.part == BenchPart::kAll) {
      products();
      for (int32_t rows : o_.rows) small(rows);
    }
    if (o_.part != BenchPart::kLimits) attention();
    if (o_.part == BenchPart::kAll)
      for (int32_t rows : o_.rows) choice(rows);
    progress_(1);
    report.rows = std::move(rows_);
    return report;
  }

 private:
  static Buffer floats(int64_t rows, int64_t width) {
    Buffer b(static_cast<size_t>(rows * width) * sizeof(float));
    uint64_t state = 2463534242u;
    fill_numbers(b.data(), b.size(), true, state);
    return b;
  }

  // `make(i)` gives the operation of run i.
  template <class Make>
  void measure(const std::string& what, int32_t rows, uint64_t set, bool bytes, Make make) {
    device_->run(make(0));
    std::vector<double> times;
    const auto end = Clock::now() + std::chrono::duration<double>(each_);
    for (int i = 1; times.size() < kRunsMin || Clock::now() < end; i++) {
      const auto op = make(i);
      const auto start = Clock::now();
      device_->run(op);
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    const auto op = make(0);
    BenchRow row{name(op), what, rows, *middle, cost(op), set};
    row.working_set = std::max<uint64_t>(set, row.cost.bytes());
    const double time = std::max(row.seconds, 1e-9);
    const auto share = [&](uint64_t amount, double limit) {
      return limit > 0 ? static_cast<double>(amount) / time / limit : 0;
    };
    row.memory_share = share(row.cost.bytes(), read_limit(*limits_, row.working_set));
    row.compute_share =
        share(row.cost.flops, bytes ? limits_->int8_ops_per_second : limits_->f32_flops_per_second);
    rows_.push_back(row);
    progress_(std::min(1.0, done_ += step_));
  }

  void products() {
    const BenchShape& s = o_.shape;
    const int32_t heads = s.heads * s.head_dim;
    const int32_t qkv = heads + 2 * s.kv_heads * s.head_dim;
    product("qkv", qkv, s.dim, s.layer, false);
    product("out", s.dim, heads, s.layer, true);
    product("gate_up", 2 * s.ffn, s.dim, s.layer, false);
    product("down", s.dim, s.ffn, s.layer, true);
    product("head", s.vocab, s.dim, s.head, false);
    Ring table(s.head, s.vocab, s.dim, 0);
    std::vector<int32_t> ids(static_cast<size_t>(most_));
    uint64_t state = 1;
    for (int32_t rows : o_.rows) {
      measure(text(s.vocab, s.dim, s.head), rows, table.bytes(), false, [&](int) {
        for (auto& id : ids)
          id = static_cast<int32_t>(next(state) % static_cast<uint64_t>(s.vocab));
        return Embed{table.turn(), ids.data(), rows, y_.as<float>()};
      });
    }
  }

  static std::string text(int32_t n, int32_t k, WeightType type) {
    return std::to_string(n) + "x" + std::to_string(k) + " " + name(type);
  }

  void product(const char* what, int32_t n, int32_t k, WeightType type, bool add) {
    Ring ring(type, n, k, o_.working_set);
    const bool bytes = quantized(type);
    const Rows x = bytes ? Rows{nullptr, q_.as<QuantBlock>()} : Rows{x_.as<float>(), nullptr};
    for (int32_t rows : o_.rows) {
      measure(std::string(what) + " " + text(n, k, type), rows, ring.bytes(), bytes,
              [&](int) { return MatMul{ring.turn(), x, rows, y_.as<float>(), n, add}; });
    }
  }

  void small(int32_t rows) {
    const BenchShape& s = o_.shape;
    const auto width = [](int32_t n) { return std::to_string(n) + " wide"; };
    QuantBlock* q = q_.as<QuantBlock>();
    const float* x = x_.as<float>();
    measure(width(s.dim), rows, 0, false, [&](int) {
      return RmsNorm{x, gain_.as<float>(), rows, s.dim, 1e-5f, {nullptr, q}};
    });
    measure(width(s.dim), rows, 0, false, [&](int) { return QuantizeRows{x, rows, s.dim, q}; });
    measure(width(s.ffn), rows, 0, false, [&](int) {
      return SwiGlu{x, rows, s.ffn, {nullptr, q}};
    });
  }

  // Each row is a sequence of its own, the rows' KV being as long as the context.
  void attention() {
    const BenchShape& s = o_.shape;
    const int32_t blocks = (o_.context + kBlockTokens - 1) / kBlockTokens;
    KvPool pool{{device_->kv_type(), 1, s.kv_heads, s.head_dim, kBlockTokens}, nullptr};
    const uint64_t sequence = pool.layout.block_bytes() * static_cast<uint64_t>(blocks);
    const auto sequences = static_cast<int32_t>(
        std::clamp<uint64_t>(o_.working_set / sequence, static_cast<uint64_t>(most_), 4096));
    Buffer memory(sequence * static_cast<uint64_t>(sequences));
    uint64_t state = 5;
    fill_numbers(memory.data(), memory.size(), pool.layout.type == KvType::kF32, state);
    pool.base = memory.data();
    std::vector<uint32_t> tables(static_cast<size_t>(blocks) * static_cast<size_t>(sequences));
    for (size_t i = 0; i < tables.size(); i++) tables[i] = static_cast<uint32_t>(i);
    std::vector<StepRow> steps(static_cast<size_t>(most_));
    Buffer rope = floats(o_.context, s.head_dim);
    const auto step = [&](int i, int32_t rows) {
      for (int32_t r = 0; r < rows; r++) {
        const int64_t from = (int64_t{i} * rows + r) % sequences;
        steps[static_cast<size_t>(r)] = {tables.data() + from * blocks, o_.context - 1};
      }
      return steps.data();
    };
    const std::string what = std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " x " +
                             std::to_string(s.head_dim) + ", " + std::to_string(o_.context) +
                             " tokens";
    for (int32_t rows : o_.rows) {
      measure(what, rows, memory.size(), false, [&](int i) {
        return RopeAppendKv{
            y_.as<float>(), step(i, rows), rope.as<float>(), rows, s.heads, s.head_dim, 0, pool};
      });
      measure(what, rows, memory.size(), false, [&](int i) {
        return Attention{
            x_.as<float>(), step(i, rows), rows, s.heads, 0, pool, {nullptr, q_.as<QuantBlock>()}};
      });
    }
  }

  // What comes after the logits. The edits change nothing, so that repeating them does not.
  void choice(int32_t rows) {
    const int32_t vocab = o_.shape.vocab, edits = std::min(vocab, 1000), top = std::min(vocab, 20);
    const auto n = static_cast<size_t>(rows);
    std::vector<LogitEdit> edit;
    std::vector<int32_t> begins{0};
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t i = 0; i < edits; ++i) edit.push_back({i * (vocab / edits), 1, 0});
      begins.push_back(static_cast<int32_t>(edit.size()));
    }
    measure(std::to_string(edits) + " edits", rows, 0, false, [&](int) {
      return AdjustLogits{y_.as<float>(), edit.data(), begins.data(), rows, vocab, vocab};
    });
    const std::vector<int32_t> chosen(n, 1), counts(n, top);
    std::vector<int32_t> top_ids(n * static_cast<size_t>(top));
    std::vector<float> logprob(n), top_logprobs(top_ids.size());
    const std::string of = " of " + std::to_string(vocab);
    measure(std::to_string(top) + of, rows, 0, false, [&](int) {
      return LogProbs{y_.as<float>(), chosen.data(),  counts.data(),      rows, vocab, vocab, top,
                      logprob.data(), top_ids.data(), top_logprobs.data()};
    });
    std::vector<SampleRow> params(static_cast<size_t>(rows), SampleRow{0, 0, 1, 0, 1, 0});
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    measure("greedy" + of, rows, 0, false, [&](int) {
      return Sample{y_.as<float>(), params.data(), rows, vocab, vocab, ids.data()};
    });
  }

  const BenchOptions& o_;
  const std::function<void(double)>& progress_;
  std::unique_ptr<Device> device_;
  const CpuLimits* limits_ = nullptr;
  std::vector<BenchRow> rows_;
  int32_t most_ = 0;
  int32_t width_ = 0;
  Buffer x_, y_, q_, gain_;
  double each_ = 0, step_ = 0, done_ = 0;
};

}  // namespace

BenchReport bench_cpu(const BenchOptions& options, const std::function<void(double)>& progress) {
  return Bench(options, progress).run();
}

}  // namespace headrace::kernels
