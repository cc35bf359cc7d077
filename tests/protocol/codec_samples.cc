#include "tests/protocol/codec_samples.h"

#include <doctest/doctest.h>

#include <limits>

#include "protocol/limits.h"
#include "protocol/random.h"

namespace headrace {
namespace {

constexpr uint64_t k64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t k32 = std::numeric_limits<uint32_t>::max();
constexpr Token kLow = std::numeric_limits<Token>::min();
constexpr Token kHigh = std::numeric_limits<Token>::max();
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

std::string awkward() { return std::string("nul \0 \xFF\xFE \xF0\x9F\x98\x80 \n", 15); }

Sampling extreme_sampling() {
  Sampling s{std::numeric_limits<float>::max(), -1, -0.0f, 1e-38f, k64, -2, 1.5f, 1e-45f, {}, 0};
  s.bias = {{kHigh, -100}, {kLow, 1e-45f}, {0, kInfF}};
  s.logprobs = limits::kLogprobs;
  return s;
}

GrantedBlocks granted(size_t blocks) {
  GrantedBlocks g{{1, k64}, {"host", 65535}, {k64, 2}, {}, k32};
  for (size_t i = 0; i < blocks; ++i)
    g.blocks.push_back({BlockId{k32 - static_cast<uint32_t>(i)}, Generation{k32}});
  return g;
}

std::vector<PrefixEvent> events() {
  std::vector<PrefixEvent> all;
  for (uint64_t i = 0; i < limits::kPrefixEvents; ++i)
    all.push_back({static_cast<PrefixEvent::Kind>(i % 3), k64 - i});
  return all;
}

Logprobs logprobs(size_t alternatives) {
  Logprobs l{-0.5f, {}};
  for (size_t i = 0; i < alternatives; ++i)
    l.top.push_back({kLow + static_cast<Token>(i), kLogprobFloor + static_cast<float>(i)});
  return l;
}

ModelCard card() {
  ModelCard c;
  c.name = awkward();
  c.architecture = "llama";
  c.weights = {1, 2};
  c.tokenizer = {3, 4};
  c.layers = 5;
  c.dim = 6;
  c.ffn = 7;
  c.heads = 8;
  c.kv_heads = 9;
  c.head_dim = 10;
  c.vocab = 11;
  c.context = 12;
  c.block_tokens = 13;
  c.block_bytes = k64;
  c.kv_layout = std::string(limits::kStringBytes, 'x');
  c.numerics = "cpu-int8/32 slice256";
  c.cost = {14, 15, 16, 17, 18, true};
  return c;
}

}  // namespace

std::vector<ToWorker> sample_to_worker() {
  using namespace to_worker;
  std::vector<ToWorker> all;
  all.push_back(Welcome{});
  all.push_back(Welcome{Term{k64}, WorkerId{k64}, limits::kDuration, {k64, 3}});
  all.push_back(Rejected{});
  all.push_back(Rejected{error(Errc::kInvalid, awkward())});
  all.push_back(Ping{});
  all.push_back(
      Ping{Term{1}, std::vector<TransferId>(limits::kTransfers, TransferId{k64, 0}), k64, 7});
  all.push_back(FetchTokenizer{});
  all.push_back(FetchTokenizer{{k64, k64}, k64});
  all.push_back(Prepare{});
  Prepare prepare{Term{7},
                  {1, 2},
                  {3, 4},
                  {5, 6},
                  Attempt{k32},
                  {0, -1, kLow, kHigh},
                  k32,
                  k32,
                  extreme_sampling(),
                  {2, 0},
                  true,
                  true,
                  -limits::kDuration,
                  k64};
  all.push_back(prepare);
  prepare.prompt.assign(100'000, kHigh);
  prepare.end_tokens.assign(limits::kEndTokens, 5);
  prepare.remote_prefill = false;
  for (size_t i = 3; i < limits::kLogitBias; ++i)
    prepare.sampling.bias.push_back({kHigh, -100 + 0.125f * static_cast<float>(i)});
  prepare.sampling.logprobs = 1;
  all.push_back(prepare);
  all.push_back(Start{});
  all.push_back(
      Start{Term{7}, {1, 2}, {3, 4}, {5, 6}, Attempt{9}, {1, 2, 3}, granted(1000), 10s, k64});
  all.push_back(Cancel{});
  all.push_back(Cancel{Term{1}, {2, 3}, Attempt{4}, error(Errc::kCancelled, "client gone")});
  return all;
}

std::vector<ToCoordinator> sample_to_coordinator() {
  using namespace to_coordinator;
  std::vector<ToCoordinator> all;
  all.push_back(Register{});
  Register full{card(), Role::kBoth, {1, 2},  "decode-0", awkward(),
                k64,    {"::1", 1},  {"", 0}, k32,        {}};
  for (size_t i = 0; i < limits::kReadPoints; ++i) full.limits.read.push_back({k64 - i, kInf});
  full.limits.int8_ops_per_second = kTiny;
  full.limits.f32_flops_per_second = -0.0;
  full.limits.bf16_flops_per_second = 9.9e14;
  full.limits.link_bytes_per_second = std::numeric_limits<double>::max();
  all.push_back(full);
  all.push_back(Beat{});
  all.push_back(Beat{{1, 2},
                     k64,
                     {1, 2, 3, 4, 5, 6, 7},
                     8,
                     9,
                     k64,
                     11,
                     std::vector<TransferId>(limits::kTransfers, TransferId{0, 1}),
                     5ms,
                     {kInf, -1, -3ms},
                     true,
                     {0.75, kTiny, Wall::kGaps},
                     {kInf, -1, Wall::kCache},
                     k64,
                     events(),
                     k64});
  Beat small;  // small enough to be cut and mutated
  small.transfers = {{1, 2}};
  small.draining = true;
  small.prefill = {0.5, 2, Wall::kLink};
  small.prefix_events = {{PrefixEvent::Kind::kReset, 0}, {PrefixEvent::Kind::kEvicted, 5}};
  small.ping_seen = 3;
  all.push_back(small);
  all.push_back(TokenizerPiece{});
  all.push_back(TokenizerPiece{{1, 2}, k64, k64, Bytes(limits::kPieceBytes, std::byte{0xAB})});
  all.push_back(Grant{});
  all.push_back(Grant{{1, 2}, Attempt{3}, granted(limits::kBlocks)});
  all.push_back(Refuse{});
  all.push_back(Refuse{{1, 2}, Attempt{3}, error(Errc::kOverloaded, "no blocks")});
  all.push_back(PrefillDone{});
  all.push_back(PrefillDone{{1, 2}, Attempt{3}, 4ns, k64, k32});
  all.push_back(Owned{});
  all.push_back(Owned{{k64, k64}, Attempt{k32}, k64, 5ns});
  all.push_back(AttemptFailed{{1, 2}, Attempt{3}, error(Errc::kUnknown, awkward())});
  all.push_back(Tokens{});
  Tokens one;
  one.runs.resize(1);
  one.runs[0].ids = {5, 6};
  one.runs[0].logprobs = {logprobs(2), logprobs(0)};
  all.push_back(one);
  Tokens tokens;
  for (uint32_t i = 0; i < 300; ++i)
    tokens.runs.push_back({{i, 1},
                           Attempt{i},
                           i,
                           std::vector<Token>(i % 5, kLow),
                           static_cast<Finish>(i % 5),
                           error(Errc::kNumeric, "NaN"),
                           i,
                           {i, i},
                           std::vector<Logprobs>(i % 2 == 0 ? i % 5 : 0, logprobs(i % 21))});
  tokens.runs[0].ids.assign(limits::kRunTokens, 7);
  all.push_back(tokens);
  all.push_back(Quiesced{{1, 2}, Attempt{3}, k32});
  return all;
}

std::vector<TokenizerData> sample_tokenizers() {
  TokenizerData small;
  small.model = "gpt2";
  small.pre = "smollm";
  small.tokens = {"", "a", awkward(), std::string(1000, 'z')};
  small.kinds = {TokenKind::kNormal, TokenKind::kByte, TokenKind::kControl, TokenKind::kUser};
  small.merges = {{0, 1}, {kLow, kHigh}};
  small.bos = 1;
  small.eos = kHigh;
  small.end_tokens = {0, 2};
  small.add_bos = true;
  small.chat_template = "{{ messages }}";
  TokenizerData large;
  for (int i = 0; i < 60'000; ++i) {
    large.tokens.push_back("token" + std::to_string(i));
    large.kinds.push_back(TokenKind::kNormal);
    large.merges.emplace_back(i, i / 2);
  }
  return {TokenizerData{}, small, large};
}

size_t torture(std::span<const std::byte> frame, size_t rounds,
               const std::function<Status(std::span<const std::byte>)>& decode) {
  size_t refused = 0;
  const auto attempt = [&](std::span<const std::byte> bytes) {
    // A copy of its own, so that reading one byte past it is seen.
    const std::vector<std::byte> own(bytes.begin(), bytes.end());
    const Status status = decode(own);
    if (status.ok()) return;
    ++refused;
    CHECK(status.code == Errc::kInvalid);
    CHECK_FALSE(status.message.empty());
  };
  for (size_t n = 0; n < frame.size(); ++n) attempt(frame.first(n));
  CHECK(refused == frame.size());  // no prefix is a message
  SeededRandom random(frame.size());
  for (size_t round = 0; round < rounds; ++round) {
    Bytes bytes(frame.begin(), frame.end());
    const size_t changes = 1 + random.next() % 4;
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = random.next() % bytes.size();
      const uint64_t how = random.next() % 4;
      if (how == 0) bytes[at] = static_cast<std::byte>(random.next());
      if (how == 1) bytes[at] ^= static_cast<std::byte>(1u << (random.next() % 8));
      if (how == 2) bytes[at] = std::byte{0xFF};
      if (how == 3) bytes[at] = bytes[random.next() % bytes.size()];
    }
    attempt(bytes);
  }
  return refused;
}

}  // namespace headrace
