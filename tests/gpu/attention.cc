#include <algorithm>
#include <string>

#include "kernels/activation.h"
#include "kernels/cuda/attention.h"
#include "tests/gpu/bench.h"

// Attention of one layer of Llama 3.1 8B's shape: decode (each row of another sequence), chunks of
// a prompt (all rows of one), and the KV append in front of it.

namespace headrace::gpu {
namespace {

using kernels::Buffer;
using kernels::KvLayout;
using kernels::KvPool;
using kernels::KvType;
using kernels::StepRow;

constexpr int kCopiesMax = 64;
constexpr int kLaunchesMin = 4;
constexpr int32_t kBlockTokens = 32;
constexpr uint32_t kEightBits = 0xbfbfbfbf;  // finite as e4m3

struct Heads {
  int32_t heads, kv_heads, head_dim;
};

struct Case {
  KvType type;
  int32_t sequences;
  int32_t before;  // tokens whose KV is there
  int32_t tokens;  // rows of each sequence
};

std::vector<Case> cases(bool tiny) {
  if (tiny) return {{KvType::kF16, 2, 63, 1}, {KvType::kFp8, 1, 31, 1}, {KvType::kF16, 1, 16, 40}};
  std::vector<Case> out;
  for (const int32_t sequences : {1, 8, 32, 128})
    for (const int32_t context : {1024, 4096, 16384, 32768})
      out.push_back({KvType::kF16, sequences, context - 1, 1});
  for (const KvType type : {KvType::kBf16, KvType::kFp8, KvType::kInt8})
    for (const int32_t sequences : {1, 32}) out.push_back({type, sequences, 8191, 1});
  out.push_back({KvType::kF16, 1, 131071, 1});
  for (const int32_t tokens : {128, 512, 2048, 8192}) out.push_back({KvType::kF16, 1, 0, tokens});
  for (const int32_t before : {8192, 32768}) out.push_back({KvType::kF16, 1, before, 512});
  return out;
}

// The pool, and a step of it for each launch: the same shape over other blocks.
struct Steps {
  Steps(const Bench& bench, const KvLayout& layout, const Case& c)
      : rows(c.sequences * c.tokens),
        blocks((c.before + c.tokens + kBlockTokens - 1) / kBlockTokens) {
    const uint64_t each =
        layout.block_bytes() * static_cast<uint64_t>(blocks) * static_cast<uint64_t>(c.sequences);
    copies = bench.scale().tiny ? 2
                                : static_cast<int>(std::clamp<uint64_t>(
                                      bench.scale().ring_bytes / each + 1, 1, kCopiesMax));
    pool = bench.numbers(each * static_cast<uint64_t>(copies),
                         kernels::scaled(layout.type) ? kEightBits : 0xbfffbfff);
    std::vector<uint32_t> ids(static_cast<size_t>(blocks) * static_cast<size_t>(c.sequences) *
                              static_cast<size_t>(copies));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i);
    tables = bench.values(ids);
    std::vector<StepRow> all;
    for (int i = 0; i < copies * c.sequences; ++i)
      for (int32_t t = 0; t < c.tokens; ++t)
        all.push_back({tables.as<uint32_t>() + int64_t{i} * blocks, c.before + t});
    device = bench.values(all);
    host.assign(all.begin(), all.begin() + rows);  // addresses are only compared
  }
  const StepRow* of(int launch) const {
    return device.as<StepRow>() + int64_t{launch % copies} * rows;
  }

  int32_t rows;
  int32_t blocks;  // of a sequence
  int copies;
  Buffer pool, tables, device;
  std::vector<StepRow> host;
};

std::string text(const Heads& h, const Case& c) {
  return std::to_string(h.heads) + "/" + std::to_string(h.kv_heads) + "x" +
         std::to_string(h.head_dim) + " " + kernels::name(c.type) + ", " +
         std::to_string(c.sequences) + " x " + std::to_string(c.tokens) + " after " +
         std::to_string(c.before);
}

void measure_case(const Bench& bench, const Heads& h, const Case& c) {
  const KvLayout layout{c.type, 1, h.kv_heads, h.head_dim, kBlockTokens, kernels::KvOrder::kRows};
  const Steps steps(bench, layout, c);
  const KvPool pool{layout, steps.pool.data()};
  const auto rows = static_cast<size_t>(steps.rows);
  const auto width = static_cast<size_t>((h.heads + 2 * h.kv_heads) * h.head_dim);
  const Buffer qkv = bench.numbers(rows * width * sizeof(float));
  const auto pitch = static_cast<size_t>(kernels::bf16_pitch(h.heads * h.head_dim));
  const Buffer y = bench.memory(rows * pitch * sizeof(uint16_t));
  const Buffer sums = bench.memory(rows * pitch / 32 * sizeof(float));
  // No rotation: what is rotated in place again and again stays what it was.
  std::vector<float> angles(static_cast<size_t>(c.before + c.tokens) *
                            static_cast<size_t>(h.head_dim));
  for (size_t i = 0; i < angles.size(); i += 2) angles[i] = 1;
  const Buffer rope = bench.values(angles);
  const Buffer workspace =
      bench.memory(cuda::attention_workspace(layout, c.before + c.tokens, bench.processors()));
  const Buffer counters = bench.memory(
      static_cast<size_t>(cuda::attention_counters(bench.processors())) * sizeof(uint32_t));
  const cuda::AttentionPlan plan = cuda::plan_attention(
      steps.host.data(), steps.rows, h.heads, layout, bench.processors(), workspace.size());
  const Buffer chunks = bench.values(plan.chunks);
  const Buffer tiles = bench.values(plan.tiles);
  const cuda::AttentionWork work{chunks.as<cuda::AttentionTile>(),
                                 static_cast<int32_t>(plan.chunks.size()),
                                 tiles.as<cuda::AttentionTile>(),
                                 static_cast<int32_t>(plan.tiles.size()),
                                 std::min(plan.spread, cuda::kAttentionSpreadMax),
                                 counters.as<uint32_t>()};
  const auto attention = [&](int i) {
    return kernels::Attention{qkv.as<float>(),
                              steps.of(i),
                              steps.rows,
                              h.heads,
                              0,
                              pool,
                              {.bf16 = y.as<uint16_t>(), .sums = sums.as<float>()},
                              steps.host.data()};
  };
  const int count = std::max(steps.copies, kLaunchesMin);
  const cuda::Context context = bench.context(workspace);
  bench.measure("attention", text(h, c), steps.rows, kernels::cost(attention(0)), steps.pool.size(),
                count, [&](int i) { return cuda::enqueue(attention(i), work, context); });
  const auto append = [&](int i) {
    return kernels::RopeAppendKv{
        qkv.as<float>(), steps.of(i), rope.as<float>(), steps.rows, h.heads, h.head_dim, 0, pool};
  };
  bench.measure("rope_append_kv", text(h, c), steps.rows, kernels::cost(append(0)),
                steps.pool.size(), count, [&](int i) { return cuda::enqueue(append(i), context); });
}

}  // namespace

void measure_attention(const Bench& bench) {
  const Heads heads = bench.scale().tiny ? Heads{2, 1, 64} : Heads{32, 8, 128};
  for (const Case& c : cases(bench.scale().tiny)) {
    const KvLayout layout{
        c.type, 1, heads.kv_heads, heads.head_dim, kBlockTokens, kernels::KvOrder::kRows};
    const uint64_t kv = layout.token_bytes() * static_cast<uint64_t>(c.sequences) *
                        static_cast<uint64_t>(c.before + c.tokens);
    // With a quarter to spare: a smaller GPU leaves out what it cannot hold.
    if (kv > bench.memory_free() / 4 * 3) {
      emit({{"op", "attention"}, {"shape", text(heads, c)}, {"left_out", "its KV does not fit"}});
      continue;
    }
    measure_case(bench, heads, c);
  }
}

}  // namespace headrace::gpu
