#include "deploy/cli/plan_time.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace headrace::cli {
namespace {

using kernels::KvType;

PlanCase on_h200(PlanWeights weights, KvType kv, int32_t batch, int32_t context) {
  PlanCase at;
  at.format = {.weights = weights, .kv = kv};
  at.machine = plan_machine(*plan_gpu("h200"), std::nullopt, std::nullopt);
  at.batch = batch;
  at.context = context;
  return at;
}

PlanHandOff hand_off(const PlanModel& model, const PlanCase& at, double link) {
  return plan_hand_offs(model, at, {&link, 1}).front();
}

// Published arithmetic for an H200 at 4.3 TB/s: bytes, milliseconds and tokens per second of a step
// of Llama 3.1 8B and 70B, for weights with a scale of 16 bits to each 128.
struct Floor {
  const char* what;
  const char* shape;
  PlanWeights weights;
  std::optional<PlanWeights> output;
  KvType kv;
  int32_t batch, context;
  double gigabytes, milliseconds, per_second;
};
constexpr auto kNone = std::nullopt;
const Floor kFloors[] = {
    {"bf16", "8b", PlanWeights::kBf16, kNone, KvType::kBf16, 1, 512, 15.0, 3.49, 287},
    {"w8", "8b", PlanWeights::kW8, kNone, KvType::kBf16, 1, 512, 7.6, 1.77, 566},
    {"head w8", "8b", PlanWeights::kW4, PlanWeights::kW8, KvType::kBf16, 1, 512, 4.1, 0.96, 1040},
    {"w4", "8b", PlanWeights::kW4, kNone, KvType::kBf16, 1, 512, 3.9, 0.90, 1110},
    {"32", "8b", PlanWeights::kW4, kNone, KvType::kBf16, 32, 2048, 3.9 + 8.6, 2.9, 11000},
    {"32 fp8", "8b", PlanWeights::kW4, kNone, KvType::kFp8, 32, 2048, 3.9 + 4.3, 1.9, 16800},
    {"128 fp8", "8b", PlanWeights::kW4, kNone, KvType::kFp8, 128, 2048, 3.9 + 17, 4.9, 26000},
    {"70b", "70b", PlanWeights::kW4, kNone, KvType::kBf16, 1, 512, 36.4, 8.5, 118},
};

TEST_CASE("floors that were published, within 3 %") {
  for (const Floor& f : kFloors) {
    CAPTURE(std::string(f.what));
    PlanCase at = on_h200(f.weights, f.kv, f.batch, f.context);
    at.format.output = f.output;
    at.format.group = 128;
    const PlanTime step = plan_decode(*plan_shape(f.shape), at);
    const auto near = [](double value, double published) {
      return std::abs(value / published - 1) <= 0.03;
    };
    CHECK(near(static_cast<double>(step.bytes()) / 1e9, f.gigabytes));
    CHECK(near(step.floor * 1e3, f.milliseconds));
    CHECK(near(f.batch / step.floor, f.per_second));
    CHECK(step.wall == Wall::kDram);
  }
}

TEST_CASE("batches at which products turn to computing, as published for short contexts") {
  // 184, 94 and 47 rows: 790 TFLOP/s over 4.3 TB/s, times the bytes of a weight, over two.
  const auto turn = [](PlanWeights weights) {
    PlanCase at = on_h200(weights, KvType::kFp8, 1, 1);
    at.format.group = 128;
    return plan_compute_batch(*plan_shape("8b"), at);
  };
  CHECK(turn(PlanWeights::kBf16) == doctest::Approx(184).epsilon(0.03));
  CHECK(turn(PlanWeights::kW8) == doctest::Approx(94).epsilon(0.03));
  CHECK(turn(PlanWeights::kW4) == doctest::Approx(47).epsilon(0.03));
}

TEST_CASE("the batch at which a step computes longer is the first that does") {
  for (const int32_t context : {1, 64, 256, 2048, 32'768}) {
    PlanCase at = on_h200(PlanWeights::kW4, KvType::kFp8, 1, context);
    at.machine.cache = INFINITY;
    const PlanModel m = *plan_shape("70b");
    const uint32_t found = plan_compute_batch(m, at);
    const auto wall = [&](uint32_t batch) {
      at.batch = static_cast<int32_t>(batch);
      return plan_decode(m, at).wall;
    };
    CAPTURE(context);
    if (found == 0) {
      CHECK(wall(4096) == Wall::kDram);
      continue;
    }
    CHECK(wall(found) == Wall::kCompute);
    if (found > 1) CHECK(wall(found - 1) == Wall::kDram);
  }
}

TEST_CASE("floors are those of the cluster's own model of time") {
  const PlanModel m = *plan_shape("8b");
  for (const int32_t batch : {1, 16, 300})
    for (const int32_t context : {64, 2048}) {
      PlanCase at = on_h200(PlanWeights::kW8, KvType::kF16, batch, context);
      at.machine.cache = INFINITY;
      TimeModel w;
      w.limits.read = {{1, 4.3e12}};
      w.limits.f32_flops_per_second = 790e12;
      w.cost.weight_bytes = 7'504'658'432ull * 34 / 32;
      w.cost.kv_token_bytes = 131'072;
      w.cost.flops_per_token = 2 * 6'979'321'856ull;
      w.cost.head_flops = 2 * 525'336'576ull;
      w.cost.attention_flops = 4 * 4096 * 32;
      const auto keys = static_cast<uint64_t>(batch) * static_cast<uint64_t>(context);
      const auto decode = predict_decode_step(w, static_cast<uint64_t>(batch), keys);
      CHECK(plan_decode(m, at).floor * 1e9 ==
            doctest::Approx(static_cast<double>(decode.count())).epsilon(0.02));
      // A prompt in one step.
      at.prompt = at.chunk = 1024;
      const auto prefill = predict_prefill(w, 1024, 0);
      CHECK(plan_prefill(m, at).floor * 1e9 ==
            doctest::Approx(static_cast<double>(prefill.count())).epsilon(0.02));
    }
}

TEST_CASE("nothing is predicted below the floor, and gaps add up") {
  const PlanModel m = *plan_shape("1b");
  PlanCase at = on_h200(PlanWeights::kW4, KvType::kF16, 1, 512);
  const PlanTime step = plan_decode(m, at);
  CHECK(step.predicted > step.floor);
  at.machine.share = 1;
  at.machine.gap = 0;
  const double bare = plan_decode(m, at).predicted;
  // Alone, all operations wait for memory; so one after the other takes as long as all bytes.
  CHECK(bare == doctest::Approx(step.floor).epsilon(0.001));
  at.machine.gap = 1e-6;
  CHECK(plan_decode(m, at).predicted - bare == doctest::Approx(step.launches * 1e-6));
}

TEST_CASE("activations cross the bus only where they exceed the cache") {
  const PlanModel m = *plan_shape("8b");
  PlanCase at = on_h200(PlanWeights::kW4, KvType::kF16, 8, 512);
  CHECK(plan_decode(m, at).activation_bytes == 0);
  at.machine.cache = 1;
  const PlanTime all = plan_decode(m, at);
  // Eight rows of 32 layers: a few hundred kilobytes each.
  CHECK(all.activation_bytes > 8u * 32 * 200'000);
  CHECK(all.activation_bytes < 8u * 32 * 500'000);
  CHECK(all.bytes() == all.weight_bytes + all.kv_bytes + all.activation_bytes);
}

TEST_CASE("a prompt computes at the published rate") {
  // 80 % of 790 TFLOP/s: about 45,000 tokens a second of 8B at short context.
  PlanCase at = on_h200(PlanWeights::kBf16, KvType::kBf16, 1, 512);
  at.prompt = at.chunk = 512;
  at.machine.gap = 0;
  const double rate = 512 / plan_prefill(*plan_shape("8b"), at).predicted;
  CHECK(rate == doctest::Approx(45'000).epsilon(0.03));
  // Its KV then comes at 5.9 GB/s.
  at.machine.share = 0.8;
  const PlanHandOff h = hand_off(*plan_shape("8b"), at, 400e9 / 8);
  CHECK(static_cast<double>(h.bytes) / h.prefill == doctest::Approx(5.9e9).epsilon(0.03));
}

TEST_CASE("what fits") {
  const PlanModel m = *plan_shape("70b");
  PlanCase at = on_h200(PlanWeights::kBf16, KvType::kF16, 1, 512);
  CHECK(plan_room(m, at).blocks == 0);  // 141 GB of weights
  CHECK(plan_room(m, at).sequences(1) == 0);
  at.format.weights = PlanWeights::kW4;
  const PlanRoom room = plan_room(m, at);
  const double left = 141e9 - 2e9 - 70.55e9 * 18 / 32;
  CHECK(static_cast<double>(room.tokens()) == doctest::Approx(left / 327'680).epsilon(0.01));
  CHECK(room.sequences(2048) == room.tokens() / 2048);
  CHECK(room.sequences(2049) == room.tokens() / 2080);  // whole blocks
  CHECK(room.holds(static_cast<int32_t>(room.sequences(512)), 512));
  CHECK(!room.holds(static_cast<int32_t>(room.sequences(512)) + 1, 512));
}

TEST_CASE("rotations take room for the positions that have some, never for all of the context") {
  const PlanModel m = *plan_shape("1b");
  PlanCase at = on_h200(PlanWeights::kW4, KvType::kF16, 1, 32);
  at.machine.reserve = 0;
  at.machine.memory = 100e9;
  const PlanRoom much = plan_room(m, at);
  constexpr uint64_t kTable = 131'072ull * 64 * 4;
  CHECK(much.rope_bytes == kTable);
  const uint64_t rest = much.weight_bytes + much.activation_bytes;
  CHECK(much.resident() == rest + kTable);
  CHECK(much.kv_bytes == 100'000'000'000ull - rest - kTable);
  CHECK(much.blocks == much.kv_bytes / much.kv_block_bytes);
  // The smallest machine on which a block fits: far less than the table of the whole context.
  const uint64_t least = much.kv_block_bytes + 32ull * 64 * 4;
  REQUIRE(least < kTable / 8);
  at.machine.memory = static_cast<double>(rest + least);
  CHECK(plan_room(m, at).holds(1, 32));
  CHECK(plan_room(m, at).kv_bytes == much.kv_block_bytes);
  at.machine.memory -= 1;
  CHECK(!plan_room(m, at).holds(1, 32));
}

TEST_CASE("workers of each kind keep each other busy") {
  const PlanModel m = *plan_shape("8b");
  PlanCase at = on_h200(PlanWeights::kW8, KvType::kF16, 16, 512);
  at.prompt = 1024;
  at.answer = 200;
  const PlanRatio r = plan_ratio(m, at);
  CHECK(r.fits);
  CHECK(r.prefill == plan_prefill(m, at).predicted);
  at.context = 1024 + 100;
  CHECK(r.decode == doctest::Approx(200 * plan_decode(m, at).predicted / 16));
  CHECK(r.ratio() == r.prefill / r.decode);
  at.answer = 400;
  CHECK(plan_ratio(m, at).ratio() < r.ratio());
  at.prompt = 4096;
  CHECK(plan_ratio(m, at).ratio() > r.ratio());
}

TEST_CASE("a hand-off hides behind the prefill, up to its last chunk") {
  const PlanModel m = *plan_shape("8b");
  PlanCase at = on_h200(PlanWeights::kBf16, KvType::kF16, 1, 512);
  at.prompt = 8192;
  at.chunk = 512;
  const double step = plan_decode(m, at).predicted;
  const PlanHandOff fast = hand_off(m, at, 400e9 / 8);
  CHECK(fast.bytes == 8192ull * 131'072);
  CHECK(fast.wire == doctest::Approx(static_cast<double>(fast.bytes) / (400e9 / 8 * 0.8)));
  CHECK(fast.first_token == doctest::Approx(fast.prefill + fast.wire / 16 + step));
  CHECK(!fast.loses());
  // A link slower than the prefill is what one waits for, after the first chunk.
  const PlanHandOff slow = hand_off(m, at, 10e9 / 8);
  const double first = plan_prefill(m, at).chunks.front();
  CHECK(slow.first_token == doctest::Approx(first + slow.wire + step));
  CHECK(slow.loses());
  // With many answers running, computing the prompt among them takes longer.
  at.batch = 64;
  CHECK(hand_off(m, at, 1e15).local > fast.local);
}

TEST_CASE("a prompt that ends within a block sends that block whole") {
  const PlanModel m = *plan_shape("1b");
  PlanCase at = on_h200(PlanWeights::kW4, KvType::kF16, 1, 512);
  const uint64_t block = plan_kv_layout(m, KvType::kF16).block_bytes();
  for (const int32_t prompt : {1, 31, 32, 33, 1000}) {
    at.prompt = prompt;
    at.chunk = 100;  // chunks that end within blocks send those that are full
    CHECK(hand_off(m, at, 1e9).bytes == block * static_cast<uint64_t>((prompt + 31) / 32));
  }
}

}  // namespace
}  // namespace headrace::cli
