#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/sim/worker_rig.h"

namespace headrace::worker {

// A simulated world with a coordinator played by hand and some workers.
struct Rig {
  explicit Rig(uint64_t seed = 1) : world({.seed = seed}), coordinator(world) {
    options.handoff.slice_bytes = 100;  // several slices a block
  }

  sim::SimWorker& add(const std::string& name, Role role) {
    WorkerOptions o = options;
    o.name = name;
    o.role = role;
    workers.push_back(std::make_unique<sim::SimWorker>(
        sim::start_worker(world, std::move(o), engine, sim::HandCoordinator::kAddress)));
    world.run_while([&] { return !coordinator.registered(name); }, 5s);
    world.run_for(20ms);
    return *workers.back();
  }
  Incarnation incarnation(const std::string& name) const {
    return coordinator.registration(name).incarnation;
  }
  std::vector<Token> prompt(uint32_t n) {
    std::vector<Token> p(n);
    for (auto& t : p) t = static_cast<Token>(world.random().next() % engine.vocab);
    return p;
  }
  to_worker::Prepare prepare(const std::string& decode, std::vector<Token> tokens,
                             uint32_t max_tokens, bool remote) {
    to_worker::Prepare m;
    m.term = coordinator.term;
    m.worker = incarnation(decode);
    m.request = world.random().mint<RequestId>();
    m.transfer = world.random().mint<TransferId>();
    m.attempt = Attempt{1};
    m.prompt = std::move(tokens);
    m.max_tokens = max_tokens;
    m.remote_prefill = remote;
    m.deadline = 60s;
    coordinator.live.insert(m.transfer);
    return m;
  }
  to_worker::Start start_for(const std::string& prefill, const to_worker::Prepare& m,
                             const GrantedBlocks& grant) {
    to_worker::Start s;
    s.term = coordinator.term;
    s.worker = incarnation(prefill);
    s.request = m.request;
    s.transfer = m.transfer;
    s.attempt = m.attempt;
    s.tokens.assign(m.prompt.begin(), m.prompt.end() - 1);
    s.grant = grant;
    s.deadline = 60s;
    return s;
  }
  // The grant for a Prepare just sent; empty blocks when none came.
  GrantedBlocks await_grant(const std::string& decode, TransferId transfer) {
    GrantedBlocks granted;
    world.run_while(
        [&] {
          for (const auto& g : coordinator.said<to_coordinator::Grant>(decode)) {
            if (g.transfer == transfer) granted = g.granted;
          }
          return granted.blocks.empty();
        },
        2s);
    return granted;
  }
  bool await_finish(const std::string& decode, TransferId transfer, Duration most = 30s) {
    return world.run_while([&] { return !coordinator.finished(decode, transfer); }, most);
  }
  template <class T>
  bool await_said(const std::string& worker, size_t n = 1, Duration most = 20s) {
    return world.run_while([&] { return coordinator.said<T>(worker).size() < n; }, most);
  }
  std::vector<Token> expected(const to_worker::Prepare& m, Finish* finish = nullptr) const {
    return sim::sim_answer(engine, m.prompt, m.max_tokens, m.sampling, m.end_tokens, finish);
  }
  // Nobody holds a block any more: all are free or cached.
  bool all_free() const {
    for (const auto& w : workers) {
      if (!w->process->alive()) continue;
      const BlockCounts c = w->node->worker().blocks();
      if (!sim::blocks_add_up(c) || c.free + c.cached != c.total ||
          w->node->worker().sequences() != 0) {
        return false;
      }
    }
    return true;
  }
  bool nothing_held(const std::string& name) const {
    for (const auto& w : workers) {
      if (w->process->name() != name) continue;
      const BlockCounts c = w->node->worker().blocks();
      return sim::blocks_add_up(c) && c.free + c.cached == c.total;
    }
    return false;
  }
  bool no_violation() const {
    for (const auto& w : workers) {
      if (!w->engine->violations().empty()) return false;
    }
    return true;
  }

  sim::SimEngineOptions engine;
  WorkerOptions options;
  sim::SimWorld world;
  sim::HandCoordinator coordinator;
  std::vector<std::unique_ptr<sim::SimWorker>> workers;
};

}  // namespace headrace::worker
