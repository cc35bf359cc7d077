#include "tests/sim/nccl_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tests/sim/nccl_peer.h"

namespace headrace::sim {
namespace {

using worker::LaneEnd;

constexpr Duration kStorm = 8s;
constexpr Duration kEndsWithin = 25s;    // of a hand-off, its memory back or lost: init 10, abort 5
constexpr Duration kNoticesWithin = 7s;  // that an abort hangs
constexpr uint32_t kAttempts = 4;
constexpr size_t kTraceMax = 20000;

// What may go wrong in a storm, each for a while.
enum class Trouble : uint8_t {
  kHangMint,
  kHangInit,
  kHangMoves,
  kHangAbort,
  kFailMint,
  kFailInit,
  kFailMoves,
  kLie,
  kKill,
  kKillSilently,
  kFreeze,
  kBreakLinks,
  kHold,
  kCount,
};

class Run {
 public:
  Run(uint64_t seed, size_t trace) : world_({.seed = seed, .trace_max = trace}), fabric_(world_) {
    auto& r = world_.random();
    peaceful_ = seed % 4 == 0;
    options_.pairs_max = peaceful_ || r.next() % 2 ? 16 : 2 + r.next() % 2;
    options_.shun = 2s;
    options_.slot_bytes = 1u << 16;
    const size_t count = 2 + r.next() % 3;
    for (size_t i = 0; i < count; ++i) {
      peers_.push_back({});
      odd_version_.push_back(!peaceful_ && r.next() % 8 == 0);
      spawn(i);
    }
  }

  NcclRun go() {
    plan_hand_offs(kStorm);
    if (!peaceful_) plan_trouble();
    watch();
    world_.run_for(kStorm);
    calm();
    world_.run_for(kEndsWithin);
    final_round();
    world_.run_for(kEndsWithin);
    check_end();
    result_.wrong = fabric_.wrong;
    if (!fabric_.wrong.empty()) result_.trace = world_.trace();
    for (const auto& p : peers_) result_.broken += p.peer->pairs().broken();
    result_.lies = fabric_.lies;
    result_.moved = fabric_.moved;
    result_.seconds = std::chrono::duration<double>(world_.now() - start_).count();
    return result_;
  }

 private:
  struct Held {
    std::unique_ptr<NcclPeer> peer;
    uint64_t minted = 0;
  };
  struct Wanted {
    size_t from = 0, to = 0;
    NcclTask task;
    uint32_t attempts = 0;
    bool must = false;  // the last round: has to come through
    bool over = false;
    bool spoilt = false;  // one of the two died
  };

  uint64_t pick(uint64_t n) { return world_.random().next() % n; }

  void spawn(size_t i) {
    peers_[i].peer = nullptr;
    options_.idle = world_.draw(500ms, 4s);  // not the same at both ends
    NcclPeer::Setup setup{"w" + std::to_string(i), odd_version_[i] ? 22900u : 22809u, options_, {}};
    setup.ended = [this](const NcclTask& task, LaneEnd end, const NcclEnd& how) {
      on_end(task, end, how);
    };
    peers_[i].peer = std::make_unique<NcclPeer>(world_, fabric_, setup);
  }

  void plan_hand_offs(Duration span) {
    const uint64_t count = 3 + pick(25);
    for (uint64_t i = 0; i < count; ++i) {
      const size_t from = pick(peers_.size());
      const size_t to = (from + 1 + pick(peers_.size() - 1)) % peers_.size();
      NcclTask task{0, uint32_t(1 + pick(12)), {}, false};
      if (pick(6) == 0) {
        task.cancel_after = world_.draw(1ms, 80ms);
        task.cancel_at_decode = pick(2);
      }
      // In bursts, so that they meet.
      const Duration at =
          pick(2) ? world_.draw(0ms, span) : world_.draw(0ms, 20ms) + 1s * int(pick(8));
      world_.at(at, [this, from, to, task] { want(from, to, task, false); });
    }
  }

  void want(size_t from, size_t to, NcclTask task, bool must) {
    task.number = ++next_task_;
    wanted_[task.number] = {from, to, task, 0, must, false, false};
    attempt(task.number);
  }

  void attempt(uint32_t number) {
    Wanted& w = wanted_.at(number);
    ++w.attempts;
    ++result_.hand_offs;
    peers_[w.from].peer->hand_off(w.task, *peers_[w.to].peer);
  }

  void on_end(const NcclTask& task, LaneEnd end, const NcclEnd& how) {
    Wanted& w = wanted_.at(task.number);
    if (world_.tracing())
      world_.note("task " + std::to_string(task.number) +
                  (end == LaneEnd::kPrefill ? " ended at P: " : " ended at D: ") + how.why);
    const bool cancelled = task.cancel_after > 0ms;
    if (peaceful_ && !how.ok && !how.cancelled && !cancelled) {
      fabric_.violation("failed though nothing went wrong: " + how.why);
    }
    if (end == LaneEnd::kDecode) return;
    result_.over_nccl += how.ok && how.nccl;
    if (how.ok || cancelled) {
      w.over = true;
      return;
    }
    ++result_.failed;
    if (w.attempts >= kAttempts) return;
    world_.at(200ms, [this, number = task.number] {
      Wanted& again = wanted_.at(number);
      if (!again.over) attempt(number);
    });
  }

  void plan_trouble() {
    const uint64_t count = 1 + pick(3);
    for (uint64_t i = 0; i < count; ++i) {
      const auto trouble = Trouble(pick(uint64_t(Trouble::kCount)));
      const size_t who = pick(peers_.size());
      world_.at(world_.draw(0ms, kStorm - 1s), [this, trouble, who] { befall(trouble, who); });
    }
  }

  void befall(Trouble trouble, size_t who) {
    NcclPeer& peer = *peers_[who].peer;
    NcclFaults& faults = peer.driver().faults;
    if (world_.tracing())
      world_.note("trouble " + std::to_string(int(trouble)) + " at " + peer.name());
    switch (trouble) {
      case Trouble::kHangMint:
        faults.hang_mint = true;
        break;
      case Trouble::kHangInit:
        faults.hang_init = true;
        break;
      case Trouble::kHangMoves:
        faults.hang_moves = true;
        break;
      case Trouble::kHangAbort:
        faults.hang_moves = faults.hang_abort = true;
        break;
      case Trouble::kFailMint:
        faults.fail_mint = true;
        break;
      case Trouble::kFailInit:
        faults.fail_init = true;
        break;
      case Trouble::kFailMoves:
        faults.fail_moves = true;
        break;
      case Trouble::kLie:
        faults.lie_one_in = 3;
        break;
      case Trouble::kKill:
      case Trouble::kKillSilently:
        return restart(who, trouble == Trouble::kKillSilently);
      case Trouble::kFreeze:
        return world_.freeze(peer.process(), world_.draw(100ms, 4s));
      case Trouble::kBreakLinks:
        return world_.break_links(peer.process());
      case Trouble::kHold: {
        const size_t other = (who + 1) % peers_.size();
        return world_.hold(peer.name(), peers_[other].peer->name(), world_.draw(100ms, 4s));
      }
      case Trouble::kCount:
        break;
    }
    if (pick(3) == 0) return;  // until the storm ends
    world_.at(world_.draw(10ms, 4s), [this, who] {
      peers_[who].peer->driver().faults = {};
      peers_[who].peer->driver().nudge();
    });
  }

  void restart(size_t who, bool silently) {
    peers_[who].peer->die(silently);
    dead_.push_back(std::move(peers_[who].peer));
    for (auto& [number, w] : wanted_) {
      if (w.from == who) w.over = true;  // nobody is left who wants it
    }
    spawn(who);
  }

  // An abort that hangs has to be seen by the process, which is then started again.
  void watch() {
    for (size_t i = 0; i < peers_.size(); ++i) {
      NcclPeer& peer = *peers_[i].peer;
      if (peer.driver().aborting() > kNoticesWithin && peer.well() && !frozen(peer)) {
        fabric_.violation("an abort hangs and the process takes itself for well");
      }
      if (!peer.well()) {
        ++result_.aborts_hung;
        restart(i, false);
      } else if (peer.driver().communicators() > options_.pairs_max) {
        fabric_.violation("more communicators than the limit");
      } else if (peer.driver().minted() > peer.readies()) {
        fabric_.violation("an id was minted before the peer was ready");
      } else if (peer.driver().unused_ids() > peer.pairs().unused_ids()) {
        fabric_.violation("more ids are unused than are counted");
      }
    }
    world_.at(50ms, [this] { watch(); });
  }

  bool frozen(const NcclPeer& peer) const { return peer.last_sweep() + 500ms < world_.now(); }

  void calm() {
    world_.calm();
    for (auto& p : peers_) {
      // What hangs in an abort goes on hanging.
      p.peer->driver().faults = {};
      p.peer->driver().nudge();
    }
  }

  void final_round() {
    for (size_t from = 0; from < peers_.size(); ++from) {
      for (size_t to = 0; to < peers_.size(); ++to) {
        if (from != to) want(from, to, {0, uint32_t(1 + pick(8)), {}, false}, true);
      }
    }
  }

  void check_end() {
    for (const auto& [number, w] : wanted_) {
      if (w.must && !w.over) {
        fabric_.violation("hand-off " + std::to_string(number) + " did not come through in peace");
      }
    }
    for (const auto& p : peers_) {
      const std::string who = p.peer->name() + ": ";
      if (p.peer->open() > 0) fabric_.violation(who + "hand-offs are left");
      if (p.peer->slots_held() > 0) fabric_.violation(who + "slots are left");
      if (p.peer->pairs().pairs() > 0) fabric_.violation(who + "pairs are left");
      if (p.peer->driver().communicators() > 0) fabric_.violation(who + "communicators are left");
      if (p.peer->driver().launched() > 0) fabric_.violation(who + "launches are left");
    }
  }

  SimWorld world_;
  NcclFabric fabric_;
  const Instant start_ = world_.now();
  worker::NcclOptions options_;
  bool peaceful_ = false;
  std::vector<Held> peers_;
  std::vector<bool> odd_version_;
  std::vector<std::unique_ptr<NcclPeer>> dead_;
  std::map<uint32_t, Wanted> wanted_;
  uint32_t next_task_ = 0;
  NcclRun result_;
};

}  // namespace

NcclRun run_nccl(uint64_t seed) {
  NcclRun run = Run(seed, 0).go();
  // Again, with words.
  return run.wrong.empty() ? run : Run(seed, kTraceMax).go();
}

std::string hunt_nccl(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const NcclRun run = run_nccl(seed);
    if (!run.wrong.empty()) return "seed " + std::to_string(seed) + ": " + run.wrong;
  }
  return "";
}

}  // namespace headrace::sim
