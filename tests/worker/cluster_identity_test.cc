#include <algorithm>

#include "tests/worker/model_support.h"
#include "tests/worker/real_cluster.h"

// One request gives the same tokens, the same KV and the same logits, bit for bit, however it is
// served: alone or in a batch, whole or in chunks, on one worker or handed over, on every path of
// the processor.
namespace headrace::worker {
namespace {

struct Outcome {
  std::vector<RealAnswer> answers;
  RecordingEngine::Log logits;
};

// Lengths around blocks (16) and attention slices (256); greedy and sampled in turn.
std::vector<RealRequest> requests() {
  SeededRandom random(42);
  std::vector<RealRequest> all;
  for (const uint32_t n :
       {1u, 2u, 15u, 16u, 17u, 18u, 33u, 48u, 64u, 65u, 100u, 129u, 200u, 257u, 290u, 330u}) {
    RealRequest r;
    r.prompt.resize(n);
    for (auto& t : r.prompt) t = static_cast<Token>(random.next() % 256);
    r.max_tokens = 12;
    r.sampling.seed = 1000 + n;
    if (all.size() % 2 == 1) r.sampling.temperature = 0.9f;
    if (all.size() % 4 == 3) r.sampling.top_p = 0.95f;
    all.push_back(std::move(r));
  }
  return all;
}

std::shared_ptr<const ModelFile> model() {
  static const auto file = open_model(test_model("tiny/q8_0.gguf"));
  return file;
}

Outcome serve(const RealOptions& options) {
  RealCluster cluster(model(), options);
  REQUIRE(cluster.all_joined());
  Outcome out;
  out.answers = cluster.ask(requests());
  out.logits = cluster.logits();
  REQUIRE(out.answers.size() == requests().size());
  return out;
}

const Outcome& alone() {
  static const Outcome outcome = [] {
    RealOptions o;
    o.both = 1;
    return serve(o);
  }();
  return outcome;
}

void check_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.answers.size(); ++i) {
    CAPTURE(i);
    CHECK_MESSAGE(got.answers[i].status.ok(), got.answers[i].status.message);
    CHECK(got.answers[i].ids == want.answers[i].ids);
    CHECK(got.answers[i].finish == want.answers[i].finish);
    CHECK(got.answers[i].kv == want.answers[i].kv);
    CHECK(static_cast<bool>(got.answers[i].kv));
  }
  CHECK(got.logits == want.logits);
}

TEST_CASE("answers are there to be compared") {
  const Outcome& o = alone();
  for (const RealAnswer& a : o.answers) {
    CHECK(a.status.ok());
    CHECK((a.ids.size() == 12 || a.finish == Finish::kStop));
    CHECK(!a.remote);
  }
  CHECK(o.answers[3].ids != o.answers[4].ids);
  CHECK(o.logits.size() >= 16 * 4);
}

TEST_CASE("batches, chunk budgets, roles, pools and transports change no bit") {
  uint32_t run = 0;
  for (const uint32_t pool : {0u, 1u, 2u, 3u}) {  // 0: role both
    for (const uint32_t budget : {16u, 64u, 512u}) {
      for (const size_t batch : {size_t{2}, size_t{7}, size_t{16}}) {
        ++run;
        if (kSanitized && run % 5 != 1) continue;
        RealOptions o;
        o.prefill = o.decode = pool;
        o.both = pool == 0 ? 1 : 0;
        o.tcp = run % 2 == 0 || pool == 1;
        o.token_budget = budget;
        o.batch = batch;
        CAPTURE(pool);
        CAPTURE(budget);
        CAPTURE(batch);
        CAPTURE(o.tcp);
        const Outcome got = serve(o);
        check_same(got, alone());
        const auto remote = std::count_if(got.answers.begin(), got.answers.end(),
                                          [](const RealAnswer& a) { return a.remote; });
        CHECK(remote == (pool == 0 ? 0 : 15));  // all but the prompt of one token
      }
    }
  }
}

TEST_CASE("every path of the processor gives the same bits") {
  for (const auto path : cpu_paths()) {
    CAPTURE(kernels::name(path));
    RealOptions o;
    o.prefill = o.decode = 1;
    o.batch = 7;
    o.path = path;
    check_same(serve(o), alone());
  }
}

}  // namespace
}  // namespace headrace::worker
