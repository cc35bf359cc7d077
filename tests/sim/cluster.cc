#include "tests/sim/cluster.h"

#include <memory>
#include <optional>
#include <utility>

#include "protocol/check.h"
#include "tests/sim/cast.h"
#include "tests/sim/judge.h"
#include "tests/sim/misfortune.h"

namespace headrace::sim {
namespace {

// Ids are the text.
class IdModel final : public coordinator::TextModel {
 public:
  Result<std::vector<Token>> encode(const coordinator::Prompt& prompt, bool) const override {
    return std::get<std::vector<Token>>(prompt);
  }
  Result<std::string> decode(std::span<const Token>) const override { return std::string(); }
  std::unique_ptr<coordinator::TextCutter> cutter() const override {
    struct Cutter final : coordinator::TextCutter {
      std::string push(std::span<const Token>) override { return {}; }
      std::string finish() override { return {}; }
    };
    return std::make_unique<Cutter>();
  }
  const std::vector<Token>& end_tokens() const override { return end_; }
  bool has_chat() const override { return false; }

 private:
  std::vector<Token> end_{kEndToken};
};

// Keeps the coordinator's own view.
struct StatusKeeper final : coordinator::ReplyPort<coordinator::ClusterStatus> {
  void on(coordinator::ClusterStatus s) override { status = std::move(s); }
  std::optional<coordinator::ClusterStatus> status;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : cast_(options), judge_(cast_), misfortune_(cast_) {}

  ClusterReport run() {
    SimWorld& world = cast_.world;
    if (cast_.options.trace) world.describe = describe_frame;
    misfortune_.script();
    start_coordinator();
    start_workers();
    script_requests();
    world.after_task = [this](const SimLife& life) {
      judge_.look(life.process);
      misfortune_.look(life.process);
    };
    watch_deadlines();
    world.run_for(cast_.options.faults_for);
    misfortune_.calm();
    const Instant calm = world.now();
    const bool over = world.run_while([this] { return !cast_.all_ended(); }, cast_.options.settle);
    if (!over) cast_.problem("not every request ended after the last misfortune");
    cast_.report.settled = std::chrono::duration<double>(world.now() - calm).count();
    world.run_for(kRest);
    look_at_coordinator();
    if (!cast_.nccl->wrong.empty()) cast_.problem("NCCL: " + cast_.nccl->wrong);
    cast_.count("slots by nccl", cast_.nccl->moved);
    judge_.look_at_end();
    return finish();
  }

 private:
  // Time to notice a dead peer, and 1 s to free what was held for it.
  static constexpr Duration kRest = 3s;

  ClusterReport finish() {
    SimWorld& world = cast_.world;
    world.after_task = nullptr;
    ClusterReport& report = cast_.report;
    report.seconds = std::chrono::duration<double>(world.now() - began_).count();
    report.events = world.events();
    report.trace_hash = world.trace_hash();
    report.trace = world.trace();
    return std::move(report);
  }

  void start_coordinator() {
    SimProcess& process = cast_.world.spawn("coordinator");
    coordinator::CoordinatorOptions options;
    options.mesh = {"coordinator", 7401};
    options.dispatcher.pd = cast_.options.pd;
    options.make_text = [](std::span<const std::byte>) {
      return Result<std::shared_ptr<const coordinator::TextModel>>(std::make_shared<IdModel>());
    };
    auto node = coordinator::CoordinatorNode::start(process.make_strand(), process.network(),
                                                    process.random(), std::move(options));
    CHECK(node.has_value());
    cast_.coordinator = std::move(*node);
    cast_.coordinator_process = &process;
    process.own(cast_.coordinator);
  }

  void start_workers() {
    const auto several = [this](uint32_t n, Role role) {
      for (uint32_t i = 0; i < n; ++i) {
        const std::string name = std::string(headrace::name(role)) + "-" + std::to_string(i);
        cast_.slots.push_back({name, role, {}, {}});
        const size_t slot = cast_.slots.size() - 1;
        cast_.world.at(cast_.draw_time(50ms), [this, slot] { misfortune_.start_worker(slot); });
      }
    };
    several(cast_.options.prefill, Role::kPrefill);
    several(cast_.options.decode, Role::kDecode);
    several(cast_.options.both, Role::kBoth);
  }

  std::vector<Token> draw_tokens(size_t n) {
    std::vector<Token> out(n);
    for (auto& t : out) t = static_cast<Token>(cast_.draw(cast_.options.engine.vocab));
    return out;
  }

  std::vector<Token> draw_prompt(const std::vector<std::vector<Token>>& prefixes) {
    auto prompt = draw_tokens(1 + cast_.draw(cast_.draw(2) == 0 ? 40 : 200));
    if (prefixes.empty() || cast_.draw(4) == 0) return prompt;
    const auto& prefix = prefixes[cast_.draw(prefixes.size())];
    const size_t shared = cast_.draw(3) == 0 ? cast_.draw(prefix.size() + 1) : prefix.size();
    prompt.resize(std::min(prompt.size(), 1 + cast_.draw(40)));
    prompt.insert(prompt.begin(), prefix.begin(), prefix.begin() + static_cast<ptrdiff_t>(shared));
    return prompt;
  }

  ClientManners draw_manners() {
    const ClusterOptions& o = cast_.options;
    ClientManners m;
    const auto one_in = [this](uint32_t n) { return n > 0 && cast_.draw(n) == 0; };
    if (one_in(o.slow_one_in)) m.takes_after = cast_.draw_time(cast_.draw(4) == 0 ? 2s : 100ms);
    if (one_in(o.resuming_one_in)) {
      m.leaves_after = 1ms + cast_.draw_time(1500ms);
      m.away = cast_.draw_time(cast_.draw(3) == 0 ? 3s : 300ms);
    }
    return m;
  }

  void script_requests() {
    const ClusterOptions& o = cast_.options;
    clients_strand_ = cast_.world.spawn("clients").make_strand();
    std::vector<std::vector<Token>> prefixes;
    for (uint32_t i = 0; i < o.prefixes; ++i) prefixes.push_back(draw_tokens(16 + cast_.draw(120)));
    uint64_t abandons = o.abandons_max == 0 ? 0 : cast_.draw(o.abandons_max + 1);
    for (uint32_t i = 0; i < o.requests; ++i) {
      coordinator::Submit s;
      s.request = cast_.world.random().mint<RequestId>();
      s.prompt = draw_prompt(prefixes);
      s.seed = cast_.draw(1000);
      s.sampling.temperature = 1;
      s.max_tokens = 1 + static_cast<uint32_t>(cast_.draw(cast_.draw(3) == 0 ? o.tokens_max : 60));
      s.deadline = o.deadline_min + cast_.draw_time(2 * o.deadline_min);
      s.known = cast_.draw(3) > 0;
      ClientManners manners = draw_manners();
      if (abandons > 0 && cast_.draw(o.requests) < 3) {
        --abandons;
        manners.abandons_after = 1ms + cast_.draw_time(cast_.draw(2) == 0 ? 50ms : 1500ms);
      }
      auto client = std::make_shared<SimClient>(clients_strand_, cast_.coordinator->dispatcher(),
                                                manners, std::move(s));
      cast_.clients.push_back(client);
      const Duration window = std::min<Duration>(o.faults_for - 500ms, 1500ms);
      cast_.world.at(100ms + cast_.draw_time(window),
                     [this, client] { clients_strand_->post([client] { client->begin(); }); });
    }
  }

  void watch_deadlines() {
    judge_.look_at_deadlines();
    cast_.world.at(1s, [this] { watch_deadlines(); });
  }

  // What the coordinator itself thinks is left, and counted.
  void look_at_coordinator() {
    const auto keeper = std::make_shared<StatusKeeper>();
    cast_.coordinator->dispatcher().tell(coordinator::AskStatus{
        Ref<coordinator::ReplyPort<coordinator::ClusterStatus>>(clients_strand_, keeper)});
    cast_.world.run_while([&] { return !keeper->status; }, 1s);
    if (!keeper->status) return cast_.problem("the coordinator does not answer");
    const coordinator::ClusterStatus& s = *keeper->status;
    if (s.waiting + s.running + s.draining != 0) cast_.problem("the coordinator holds a request");
    if (!s.ready) cast_.problem("the cluster did not come back: " + s.not_ready);
    for (const auto& w : s.workers)
      if (w.in_flight != 0) cast_.problem(w.name + ": work is booked for nobody");
    if (s.totals.conflicts != 0) cast_.problem("a worker contradicted its own tokens");
    cast_.count("attempts", s.totals.attempts);
    cast_.count("replays", s.totals.attempts_failed);
    cast_.count("stale words", s.totals.stale);
    cast_.count("repeated tokens", s.totals.repeats);
    cast_.count("gaps", s.totals.gaps);
  }

  Cast cast_;
  Judge judge_;
  Misfortune misfortune_;
  std::shared_ptr<Strand> clients_strand_;
  Instant began_ = cast_.world.now();
};

}  // namespace

ClusterReport run_cluster(const ClusterOptions& options) { return Cluster(options).run(); }

}  // namespace headrace::sim
