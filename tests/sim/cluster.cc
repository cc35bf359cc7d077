#include "tests/sim/cluster.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "coordinator/coordinator_node.h"
#include "protocol/check.h"
#include "tests/sim/worker_rig.h"

namespace headrace::sim {
namespace {

using coordinator::Chunk;
using coordinator::Ended;

const Endpoint kMesh{"coordinator", 7401};
constexpr Token kEnd = 0;  // ends an answer, about one in a thousand

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
  std::vector<Token> end_{kEnd};
};

// Takes one answer, acknowledges as it goes, checks the stream.
struct Client final : coordinator::ClientPort {
  void on(Chunk chunk) override {
    if (!ended.empty()) trouble = "a chunk after the end";
    if (chunk.position != ids.size()) trouble = "a chunk out of order";
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    dispatcher.tell(coordinator::Acknowledge{submit.request, static_cast<uint32_t>(ids.size())});
  }
  void on(Ended e) override { ended.push_back(std::move(e)); }

  coordinator::Submit submit;
  std::vector<Token> prompt;
  Ref<coordinator::Dispatcher> dispatcher;
  std::vector<Token> ids;
  std::vector<Ended> ended;
  std::string trouble;
  bool abandoned = false;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : options_(options), world_({.seed = options.seed, .spike_one_in = options.spike_one_in}) {}

  ClusterReport run() {
    start_coordinator();
    start_workers();
    script_requests();
    script_faults();
    const bool over = world_.run_while(
        [this] {
          if (++events_ % 8 == 0) check_pools();
          return !all_ended();
        },
        120s);
    if (!over) problem("not every request ended within 120 s");
    report_.seconds = std::chrono::duration<double>(world_.now() - began_).count();
    world_.run_for(1s);
    check_end();
    report_.trace_hash = world_.trace_hash();
    if (!report_.problems.empty()) report_.trace = world_.trace();
    return std::move(report_);
  }

 private:
  uint64_t draw(uint64_t n) { return world_.random().next() % n; }
  Duration draw_time(Duration most) {
    return Duration(static_cast<int64_t>(draw(static_cast<uint64_t>(most.count()) + 1)));
  }
  void problem(std::string what) {
    if (report_.problems.size() < 20) report_.problems.push_back(std::move(what));
  }

  void start_coordinator() {
    SimProcess& process = world_.spawn("coordinator");
    coordinator::CoordinatorOptions options;
    options.mesh = kMesh;
    options.dispatcher.pd = options_.pd;
    options.make_text = [](std::span<const std::byte>) {
      return Result<std::shared_ptr<const coordinator::TextModel>>(std::make_shared<IdModel>());
    };
    auto node = coordinator::CoordinatorNode::start(process.make_strand(), process.network(),
                                                    process.random(), std::move(options));
    CHECK(node.has_value());
    coordinator_ = std::move(*node);
    process.own(coordinator_);
    clients_strand_ = process.make_strand();
  }

  void start_workers() {
    const auto several = [this](uint32_t n, Role role) {
      for (uint32_t i = 0; i < n; ++i) {
        const std::string name = std::string(headrace::name(role)) + "-" + std::to_string(i);
        slots_.push_back({name, role, {}});
        const size_t slot = slots_.size() - 1;
        world_.at(draw_time(50ms), [this, slot] { start_worker(slot); });
      }
    };
    several(options_.prefill, Role::kPrefill);
    several(options_.decode, Role::kDecode);
    several(options_.both, Role::kBoth);
  }

  void start_worker(size_t slot) {
    worker::WorkerOptions o;
    o.name = slots_[slot].name;
    o.role = slots_[slot].role;
    o.token_budget = 16u << draw(4);
    o.handoff.slice_bytes = 100;
    slots_[slot].worker =
        sim::start_worker(world_, std::move(o), options_.engine, kMesh, options_.flip_one_in);
    lives_.push_back(slots_[slot].worker);
  }

  void script_requests() {
    for (uint32_t i = 0; i < options_.requests; ++i) {
      auto client = std::make_shared<Client>();
      client->prompt.resize(1 + draw(draw(2) == 0 ? 40 : 200));
      for (auto& t : client->prompt) t = static_cast<Token>(draw(options_.engine.vocab));
      coordinator::Submit& s = client->submit;
      s.request = world_.random().mint<RequestId>();
      s.prompt = client->prompt;
      s.seed = draw(1000);
      s.sampling.temperature = 1;
      s.max_tokens = 1 + static_cast<uint32_t>(draw(draw(3) == 0 ? options_.tokens_max : 60));
      s.deadline = 60s;
      s.client = Ref<coordinator::ClientPort>(clients_strand_, client);
      client->dispatcher = coordinator_->dispatcher();
      clients_.push_back(client);
      world_.at(100ms + draw_time(1500ms), [client] { client->dispatcher.tell(client->submit); });
    }
    for (uint64_t n = options_.abandons_max == 0 ? 0 : draw(options_.abandons_max + 1); n > 0;
         --n) {
      const auto client = clients_[draw(clients_.size())];
      world_.at(100ms + draw_time(2s), [client] {
        client->abandoned = true;
        client->dispatcher.tell(coordinator::Abandon{client->submit.request});
      });
    }
  }

  void script_faults() {
    for (uint64_t n = options_.crashes_max == 0 ? 0 : draw(options_.crashes_max + 1); n > 0; --n) {
      const size_t slot = draw(slots_.size());
      const Death death = draw(3) == 0 ? Death::kSilent : Death::kClosing;
      world_.at(60ms + draw_time(2500ms), [this, slot, death] { crash(slot, death); });
    }
    for (uint64_t n = options_.cuts_max == 0 ? 0 : draw(options_.cuts_max + 1); n > 0; --n) {
      const size_t slot = draw(slots_.size());
      world_.at(60ms + draw_time(2500ms), [this, slot] {
        SimProcess* process = slots_[slot].worker.process;
        if (process == nullptr || !process->alive()) return;
        world_.break_links(*process);
        ++report_.cuts;
      });
    }
  }

  void crash(size_t slot, Death death) {
    SimWorker& w = slots_[slot].worker;
    if (w.process == nullptr || !w.process->alive()) return;
    ++report_.crashes;
    count(w);
    w.node.reset();
    world_.crash(*w.process, death);
    world_.at(50ms + draw_time(1500ms), [this, slot] { start_worker(slot); });
  }

  void count(const SimWorker& w) {
    report_.preempted += w.node->worker().counters().preempted;
    report_.failed_attempts += w.node->worker().counters().failed;
  }

  bool all_ended() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& c) { return !c->ended.empty(); });
  }

  void check_pools() {
    for (const auto& slot : slots_) {
      if (!slot.worker.node) continue;
      if (!blocks_add_up(slot.worker.node->worker().blocks())) {
        problem(slot.name + ": blocks do not add up to the total");
      }
    }
  }

  void check_end() {
    for (const auto& slot : slots_) {
      if (!slot.worker.node) continue;
      count(slot.worker);
      const BlockCounts c = slot.worker.node->worker().blocks();
      if (c.free != c.total) {
        problem(slot.name + ": " + std::to_string(c.total - c.free) + " blocks leaked");
      }
      if (slot.worker.node->worker().sequences() != 0) problem(slot.name + ": a sequence is left");
    }
    for (const SimWorker& life : lives_) {
      for (const std::string& v : life.engine->violations()) {
        problem(life.process->name() + ": " + v);
      }
      report_.flips += life.network->flips();
    }
    for (size_t i = 0; i < clients_.size(); ++i) check_answer(i, *clients_[i]);
  }

  void check_answer(size_t i, const Client& client) {
    const std::string who = "request " + std::to_string(i);
    if (!client.trouble.empty()) problem(who + ": " + client.trouble);
    if (client.ended.size() != 1) {
      return problem(who + ": " + std::to_string(client.ended.size()) + " terminal records");
    }
    const Ended& ended = client.ended.front();
    Sampling sampling = client.submit.sampling;
    sampling.seed = *client.submit.seed;
    Finish finish{};
    const auto want = sim_answer(options_.engine, client.prompt, *client.submit.max_tokens,
                                 sampling, {kEnd}, &finish);
    const bool prefix = client.ids.size() <= want.size() &&
                        std::equal(client.ids.begin(), client.ids.end(), want.begin());
    if (!prefix) problem(who + ": tokens differ from the undisturbed run");
    if (ended.finish == Finish::kCancelled) {
      ++report_.cancelled;
      if (!client.abandoned) problem(who + ": cancelled, though nobody asked for it");
    } else if (ended.finish == Finish::kError) {
      ++report_.failed;
      ++report_.errors[ended.status.message];
      if (ended.status.ok() || ended.status.message.empty()) problem(who + ": no stated error");
      const bool quiet = report_.crashes == 0 && report_.cuts == 0 && report_.flips == 0;
      if (quiet) problem(who + ": failed in a quiet run: " + ended.status.message);
      world_.note(who + " failed: " + ended.status.message);
    } else {
      ++report_.complete;
      report_.remote += ended.remote_prefill ? 1 : 0;
      if (client.ids.size() != want.size() || ended.finish != finish) {
        problem(who + ": ended early or for another reason");
      }
    }
  }

  struct Slot {
    std::string name;
    Role role{};
    SimWorker worker;
  };

  ClusterOptions options_;
  ClusterReport report_;
  SimWorld world_;
  std::shared_ptr<coordinator::CoordinatorNode> coordinator_;
  std::shared_ptr<Strand> clients_strand_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<Slot> slots_;
  std::vector<SimWorker> lives_;
  Instant began_ = world_.now();
  uint64_t events_ = 0;
};

}  // namespace

ClusterReport run_cluster(const ClusterOptions& options) { return Cluster(options).run(); }

}  // namespace headrace::sim
