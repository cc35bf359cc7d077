#include "coordinator/router.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
namespace {

WorkerView worker(uint64_t id, Role role, double gflops = 100) {
  WorkerView v;
  v.id = WorkerId{id};
  v.role = role;
  v.receives = role != Role::kPrefill;
  v.blocks_total = 100;
  v.time.limits.read = {{1 << 20, 10e9}};
  v.time.limits.int8_ops_per_second = gflops * 1e9;
  v.time.limits.f32_flops_per_second = gflops * 1e9;
  v.time.limits.link_bytes_per_second = 1e9;
  v.time.cost.weight_bytes = 100'000'000;
  v.time.cost.kv_token_bytes = 20'000;
  v.time.cost.flops_per_token = 270'000'000;
  v.time.cost.head_flops = 50'000'000;
  v.time.cost.quantized = true;
  return v;
}

RouteRequest prompt(uint64_t tokens, PdMode mode = PdMode::kAuto) {
  RouteRequest r;
  r.prompt_tokens = tokens;
  r.prompt_blocks = static_cast<uint32_t>((tokens + 15) / 16);
  r.blocks = r.prompt_blocks + 2;
  r.kv_token_bytes = 20'000;
  r.mode = mode;
  return r;
}

uint64_t decode_of(const std::optional<Route>& r) { return r ? raw(r->decode) : 0; }
uint64_t prefill_of(const std::optional<Route>& r) {
  return r && r->prefill ? raw(*r->prefill) : 0;
}

}  // namespace

TEST_CASE("modes are words") {
  CHECK(*parse_pd_mode("always") == PdMode::kAlways);
  CHECK(std::string(name(*parse_pd_mode("auto"))) == "auto");
  CHECK_FALSE(parse_pd_mode("sometimes"));
}

TEST_CASE("who gets a request") {
  const auto P = worker(1, Role::kPrefill);
  const auto D = worker(2, Role::kDecode);
  const auto B = worker(3, Role::kBoth);
  SUBCASE("nobody: wait") {
    CHECK_FALSE(route(prompt(10), {}));
    const std::vector<WorkerView> only = {P};
    CHECK_FALSE(route(prompt(10), only));
  }
  SUBCASE("always: remote, but for a prompt of one token") {
    const std::vector<WorkerView> all = {P, D};
    CHECK(prefill_of(route(prompt(2, PdMode::kAlways), all)) == 1);
    CHECK(prefill_of(route(prompt(1, PdMode::kAlways), all)) == 0);
    CHECK(decode_of(route(prompt(1, PdMode::kAlways), all)) == 2);
  }
  SUBCASE("always: waits for a busy prefill worker, goes alone where none lives or can be used") {
    auto busy = P;
    busy.available = false;
    std::vector<WorkerView> all = {busy, D};
    CHECK_FALSE(route(prompt(10, PdMode::kAlways), all));
    all = {D};
    CHECK(decode_of(route(prompt(10, PdMode::kAlways), all)) == 2);
    auto deaf = D;
    deaf.receives = false;
    all = {P, deaf};
    CHECK(prefill_of(route(prompt(10, PdMode::kAlways), all)) == 0);
    auto small = P;
    small.blocks_total = 1;
    all = {small, D};
    CHECK(prefill_of(route(prompt(100, PdMode::kAlways), all)) == 0);
    CHECK(decode_of(route(prompt(100, PdMode::kAlways), all)) == 2);
  }
  SUBCASE("never: local") {
    const std::vector<WorkerView> all = {P, D, B};
    for (const uint64_t n : {1, 2, 400}) {
      CHECK(prefill_of(route(prompt(n, PdMode::kNever), all)) == 0);
      CHECK(decode_of(route(prompt(n, PdMode::kNever), all)) == 2);
    }
  }
}

TEST_CASE("who gets a request: auto, ties, room, failures") {
  const auto P = worker(1, Role::kPrefill);
  const auto D = worker(2, Role::kDecode);
  const auto B = worker(3, Role::kBoth);
  SUBCASE("auto: the sooner one") {
    auto fast = worker(1, Role::kPrefill, 10'000);
    const std::vector<WorkerView> all = {fast, D};
    CHECK(prefill_of(route(prompt(1000), all)) == 1);  // much to compute
    CHECK(prefill_of(route(prompt(4), all)) == 0);     // the hand-off costs a step more
    fast.prefill_tokens = 1'000'000;                   // long queue
    const std::vector<WorkerView> queued = {fast, D};
    CHECK(prefill_of(route(prompt(1000), queued)) == 0);
  }
  SUBCASE("auto, nothing measured: the pool layout is honoured") {
    auto p = P, d = D;
    p.time = {};
    d.time = {};
    const std::vector<WorkerView> all = {p, d};
    CHECK(prefill_of(route(prompt(10), all)) == 1);
  }
  SUBCASE("ties: least in flight, then lower id") {
    auto one = worker(5, Role::kBoth), two = worker(4, Role::kBoth);
    std::vector<WorkerView> all = {one, two};
    CHECK(decode_of(route(prompt(10), all)) == 4);
    all[1].in_flight = 1;
    CHECK(decode_of(route(prompt(10), all)) == 5);
  }
  SUBCASE("an emptier queue wins") {
    auto one = worker(4, Role::kBoth), two = worker(5, Role::kBoth);
    one.prefill_tokens = 500;
    const std::vector<WorkerView> all = {one, two};
    CHECK(decode_of(route(prompt(10), all)) == 5);
  }
  SUBCASE("no room, or has just refused") {
    auto full = D;
    full.blocks_reserved = 98;
    std::vector<WorkerView> all = {full};
    CHECK_FALSE(route(prompt(10), all));
    auto refused = D;
    refused.available = false;
    all = {refused};
    CHECK_FALSE(route(prompt(10), all));
    all = {refused, B};
    CHECK(decode_of(route(prompt(10, PdMode::kNever), all)) == 3);
  }
  SUBCASE("those who failed it come last") {
    auto r = prompt(10, PdMode::kAlways);
    r.avoid = {WorkerId{2}};
    std::vector<WorkerView> all = {P, D, B};
    CHECK(decode_of(route(r, all)) == 3);
    CHECK(prefill_of(route(r, all)) == 1);
    all = {P, D};
    CHECK(decode_of(route(r, all)) == 2);
    r.avoid = {WorkerId{1}};  // all prefill workers failed it: the decode worker does it
    all = {P, D, B};
    CHECK(prefill_of(route(r, all)) == 0);
    CHECK(decode_of(route(r, all)) == 2);
  }
}

TEST_CASE("what is cached need neither be computed nor sent") {
  struct Row {
    const char* what;
    uint64_t n, p_cached, d_cached, b_cached;
    PdMode mode;
    uint64_t decode, prefill;
    const char* reason;
    uint64_t cached;
  };
  // P (1) is ten times as fast as D (2) and B (3), which are equal.
  const Row rows[] = {
      {"nobody has anything", 1000, 0, 0, 0, PdMode::kAuto, 2, 1, "time", 0},
      {"D has nearly all", 1000, 0, 992, 0, PdMode::kAuto, 2, 0, "prefix", 992},
      {"B has nearly all", 1000, 0, 0, 992, PdMode::kAuto, 3, 0, "prefix", 992},
      {"P has it: it is only sent", 1000, 992, 0, 0, PdMode::kAuto, 2, 1, "time", 992},
      {"always: P computes although D has half", 1000, 0, 512, 0, PdMode::kAlways, 2, 1, "time", 0},
      {"always: the transfer to B is shorter", 1000, 0, 0, 992, PdMode::kAlways, 3, 1, "prefix", 0},
      {"always: D lacks nothing before the last", 993, 0, 992, 0, PdMode::kAlways, 2, 0, "prefix",
       992},
      {"never", 1000, 992, 0, 16, PdMode::kNever, 3, 0, "prefix", 16},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    auto p = worker(1, Role::kPrefill, 1000), d = worker(2, Role::kDecode);
    auto b = worker(3, Role::kDecode);
    p.cached_tokens = row.p_cached;
    d.cached_tokens = row.d_cached;
    b.cached_tokens = row.b_cached;
    const std::vector<WorkerView> all = {p, d, b};
    const auto r = route(prompt(row.n, row.mode), all);
    REQUIRE(r);
    CHECK(decode_of(r) == row.decode);
    CHECK(prefill_of(r) == row.prefill);
    CHECK(r->reason == row.reason);
    CHECK(r->cached_tokens == row.cached);
  }
  const std::vector<WorkerView> one = {worker(2, Role::kDecode)};
  CHECK(route(prompt(10), one)->reason == "only_choice");
}

TEST_CASE("sick pairs are used if there is no other, suspects are kept apart") {
  const auto P = worker(1, Role::kPrefill), D = worker(2, Role::kDecode);
  auto r = prompt(10, PdMode::kAlways);
  r.sick = {{WorkerId{1}, WorkerId{2}}};
  std::vector<WorkerView> all = {P, D};
  CHECK(prefill_of(route(r, all)) == 0);
  CHECK(decode_of(route(r, all)) == 2);
  all = {P, D, worker(3, Role::kDecode)};
  CHECK(prefill_of(route(r, all)) == 1);
  CHECK(decode_of(route(r, all)) == 3);
  all = {P, D, worker(4, Role::kPrefill)};
  CHECK(prefill_of(route(r, all)) == 4);
  auto holds = worker(5, Role::kBoth);
  holds.busy_with_suspect = true;
  all = {holds};
  CHECK(decode_of(route(prompt(10), all)) == 5);
  auto suspect = prompt(10);
  suspect.suspect = true;
  CHECK_FALSE(route(suspect, all));
  all = {holds, worker(6, Role::kBoth)};
  CHECK(decode_of(route(suspect, all)) == 6);
}

TEST_CASE("strangers share what does not slow the others down much") {
  RouteRequest r = prompt(10, PdMode::kNever);
  r.stranger = true;
  auto w = worker(1, Role::kBoth);
  const auto takes = [&](uint32_t known, uint32_t strangers) {
    w.strangers = strangers;
    w.decodes = known + strangers;
    const std::vector<WorkerView> all = {w};
    return route(r, all).has_value();
  };
  SUBCASE("where each row costs time: the least") {
    w.time.cost.weight_bytes = 1'000'000;  // from the cache
    CHECK(takes(1, 0));
    CHECK(takes(1, kStrangersLeast - 1));
    CHECK_FALSE(takes(1, kStrangersLeast));
    CHECK(takes(kStrangersSlow * 3, kStrangersLeast));  // of so many rows it is a small part
  }
  SUBCASE("where rows are for nothing: many") {
    w.time.cost.flops_per_token = w.time.cost.head_flops = 1000;
    CHECK(takes(1, 100));
  }
  SUBCASE("where nothing was measured: the least") {
    w.time.limits = {};
    CHECK(takes(5, kStrangersLeast - 1));
    CHECK_FALSE(takes(5, kStrangersLeast));
  }
  SUBCASE("prompts of others: the least") {
    r.mode = PdMode::kAlways;
    auto p = worker(2, Role::kPrefill);
    p.strangers = kStrangersLeast;
    w.role = Role::kDecode;
    const std::vector<WorkerView> all = {w, p};
    CHECK_FALSE(prefill_of(route(r, all)) == 2);
    r.stranger = false;
    CHECK(prefill_of(route(r, all)) == 2);
  }
  r.stranger = false;
  CHECK(takes(1, 100));
}

TEST_CASE("auto goes local below the crossover that the learned rate gives, remote above it") {
  // Of a token, computed remotely instead of locally: 2 ms sooner, and 20 kB to move.
  const std::vector<WorkerView> all = {worker(1, Role::kPrefill, 400), worker(2, Role::kDecode)};
  const WorkerPair pair{WorkerId{1}, WorkerId{2}};
  const Instant now{100s};
  for (const double rate : {2e6, 5e6, 20e6, 1e9}) {
    LinkRates links;
    links.learn(pair, static_cast<uint64_t>(rate), 1s, now);
    for (const uint64_t n : {2, 100, 400}) {
      CAPTURE(rate);
      CAPTURE(n);
      RouteRequest r = prompt(n);
      r.links = &links;
      r.now = now;
      CHECK(prefill_of(route(r, all)) == (rate > 10e6 && n > 2 ? 1 : 0));
      r.links = nullptr;  // what the workers announce
      CHECK(prefill_of(route(r, all)) == (n > 2 ? 1 : 0));
    }
  }
  // A trial: it says what it costs.
  LinkRates links;
  links.learn(pair, 5'000'000, 1s, now);
  RouteRequest r = prompt(100);
  r.links = &links;
  r.now = now + kLinkRateFresh;
  CHECK(prefill_of(route(r, all)) == 0);
  const Duration local = route(r, all)->first_token;
  CHECK(route(r, all)->extra == Duration{0});
  links.served(30s);
  const auto trial = route(r, all);
  CHECK(prefill_of(trial) == 1);
  CHECK(trial->extra > 100ms);
  CHECK(trial->extra < 300ms);
  CHECK(trial->first_token == local + trial->extra);
}

TEST_CASE("what is moved while later tokens are computed costs nothing, but for the last step's") {
  const WorkerPair pair{WorkerId{1}, WorkerId{2}};
  std::vector<WorkerView> all = {worker(1, Role::kPrefill), worker(2, Role::kDecode)};
  for (WorkerView& w : all) w.blocks_total = 10'000;
  LinkRates links;
  RouteRequest r = prompt(10 * kStepTokens + 1, PdMode::kAlways);
  const auto first_token = [&](double rate) {
    r.links = nullptr;
    if (rate > 0) {
      links = {};
      links.learn(pair, static_cast<uint64_t>(rate), 1s, r.now);
      r.links = &links;
    }
    const auto found = route(r, all);
    return std::chrono::duration<double>(found->first_token).count();
  };
  for (WorkerView& w : all) w.time.limits.link_bytes_per_second = 0;
  const double alone = first_token(0);  // 14 s of computing, and a step
  CHECK(first_token(40e6) - alone == doctest::Approx(0.256).epsilon(0.01));  // of 2.56 s
  // A link that takes longer than computing: what comes before the first chunk is the rest.
  const double slow = first_token(2e6);
  CHECK(slow - 51.2 == doctest::Approx(alone / 10).epsilon(0.03));
  SUBCASE("what the prefill worker has cached goes at once") {
    all[0].cached_tokens = 10 * kStepTokens;
    CHECK(first_token(2e6) == doctest::Approx(51.2).epsilon(0.001));
  }
}

}  // namespace headrace::coordinator
