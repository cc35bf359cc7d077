#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/messages.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/sim_world.h"
#include "worker/worker_node.h"

namespace headrace::sim {

// A worker as one process of the simulated world. Everything dies with the process.
struct SimWorker {
  SimProcess* process = nullptr;
  std::shared_ptr<SimEngine> engine;
  std::shared_ptr<worker::WorkerNode> node;
  std::shared_ptr<std::vector<std::string>> events;  // "joined", "lost: ...", "rejected: ..."
  std::shared_ptr<WorkerId> id;                      // as the coordinator numbered it last
};

SimWorker start_worker(SimWorld& world, worker::WorkerOptions options,
                       const SimEngineOptions& engine, const Endpoint& coordinator);

// Free and held blocks sum to the total; anything else is a leak or a double booking.
bool blocks_add_up(const BlockCounts& counts);

// Plays the coordinator by hand in tests of workers: welcomes whoever registers, keeps what each
// says, pings, sends what the test wants.
class HandCoordinator {
 public:
  static inline const Endpoint kAddress{"coordinator", 7401};

  explicit HandCoordinator(SimWorld& world);
  ~HandCoordinator();

  // To the newest link on which a worker of this name registered; dropped if there is none.
  void send(const std::string& worker, ToWorker message);
  bool registered(const std::string& worker) const { return peers_.contains(worker); }
  const to_coordinator::Register& registration(const std::string& worker) const;
  // Everything of one kind that the worker said, over all its lives, in order.
  template <class T>
  std::vector<T> said(const std::string& worker) const {
    std::vector<T> out;
    const auto it = log_.find(worker);
    if (it == log_.end()) return out;
    for (const ToCoordinator& m : it->second) {
      if (const T* t = std::get_if<T>(&m)) out.push_back(*t);
    }
    return out;
  }
  // All runs of one attempt.
  std::vector<to_coordinator::TokenRun> runs(const std::string& worker, TransferId transfer) const;
  // Their tokens joined; positions must follow each other (else the list is cut there).
  std::vector<Token> tokens(const std::string& worker, TransferId transfer) const;
  bool finished(const std::string& worker, TransferId transfer) const;
  void drop_link(const std::string& worker);  // closes it

  bool welcoming = true;  // answers Register
  bool pinging = true;    // each 250 ms, naming `live`
  Term term{1};
  CacheKey cache_key{5, 6};
  std::set<TransferId> live;
  std::vector<std::string> unread;  // frames that could not be decoded

 private:
  struct Peer {
    std::shared_ptr<Link> link;
    to_coordinator::Register registration;
  };
  void on_accept(std::shared_ptr<Link> link);
  void on_frame(const std::shared_ptr<Link>& link, const std::shared_ptr<std::string>& name,
                const Bytes& frame);
  void ping();

  SimProcess& process_;
  std::shared_ptr<Strand> strand_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<Link>> links_;
  std::map<std::string, Peer> peers_;
  std::map<std::string, std::vector<ToCoordinator>> log_;
  std::map<std::pair<std::string, TransferId>, std::vector<to_coordinator::TokenRun>> runs_;
  uint64_t next_worker_ = 1;
  uint64_t pings_ = 0;
  Timer timer_;
};

}  // namespace headrace::sim
