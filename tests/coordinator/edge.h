#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "coordinator/coordinator_node.h"
#include "coordinator/gateway.h"
#include "protocol/client.h"
#include "protocol/codec.h"
#include "protocol/kj_strand.h"
#include "protocol/local_network.h"
#include "tests/coordinator/fakes.h"

// A whole coordinator with its gateway on loopback, and a worker of a few lines: what the tests of
// the client edge stand on.
namespace headrace::coordinator::fakes {

// Answers over the mesh. The prompt says what: letters are echoed, each one higher, a token a run;
// '~' anywhere: nothing comes, ever; '*' first: 'x' until max_tokens.
class EdgeWorker {
 public:
  EdgeWorker(Network& network, std::shared_ptr<Strand> strand, const Endpoint& coordinator)
      : strand_(std::move(strand)) {
    network.dial(coordinator, 5s, {}, strand_, [this](Result<std::unique_ptr<Link>> got) {
      if (!got) return;
      link_ = std::move(*got);
      link_->start([this](const Bytes& frame) { take(*decode_to_worker(frame)); },
                   [](const Status&) {});
      say(hello(Role::kBoth, 1));
      beat();
    });
  }
  void leave() {  // on the strand
    beat_timer_ = {};
    link_ = nullptr;
  }
  std::atomic<int> prepares{0};
  std::atomic<int> cancels{0};

 private:
  void say(const ToCoordinator& m) {
    if (link_) link_->send(encode(m));
  }
  void beat() {
    to_coordinator::Beat beat;
    beat.incarnation = {1, 1};
    beat.steps = ++steps_;
    beat.ping_seen = ping_seen_;
    beat.transfers.assign(held_.begin(), held_.end());
    say(beat);
    beat_timer_ = strand_->after(100ms, [this] { this->beat(); });
  }
  void take(const ToWorker& m) {
    if (const auto* ping = std::get_if<to_worker::Ping>(&m)) ping_seen_ = ping->number;
    if (const auto* cancel = std::get_if<to_worker::Cancel>(&m)) {
      ++cancels;
      held_.erase(cancel->transfer);
    }
    if (const auto* fetch = std::get_if<to_worker::FetchTokenizer>(&m)) {
      const Bytes bytes = tokenizer_bytes();
      say(to_coordinator::TokenizerPiece{
          fetch->digest, fetch->offset, bytes.size(),
          Bytes(bytes.begin() + static_cast<long>(fetch->offset), bytes.end())});
    }
    if (const auto* p = std::get_if<to_worker::Prepare>(&m)) answer(*p);
  }
  void answer(const to_worker::Prepare& p) {
    if (!held_.insert(p.transfer).second) return;  // said again
    ++prepares;
    std::string text;
    for (const Token id : p.prompt) text += static_cast<char>(id);
    if (text.find('~') != std::string::npos) return;
    const bool endless = text[0] == '*';
    const uint32_t most = p.generated + p.max_tokens;
    const auto asked = static_cast<uint32_t>(p.prompt.size() - p.generated);
    const uint32_t count = endless ? most : std::min(most, asked);
    for (uint32_t i = p.generated; i < count; ++i) {  // not 0: it was parked
      to_coordinator::TokenRun run;
      run.transfer = p.transfer;
      run.attempt = p.attempt;
      run.position = i;
      run.ids = {endless ? 'x' : p.prompt[i] + 1};
      if (i + 1 == count) run.finish = endless ? Finish::kLength : Finish::kStop;
      say(to_coordinator::Tokens{{run}});
    }
  }

  std::shared_ptr<Strand> strand_;
  std::unique_ptr<Link> link_;
  std::set<TransferId> held_;  // told of, not cancelled
  uint64_t steps_ = 0;
  uint64_t ping_seen_ = 0;
  Timer beat_timer_;
};

struct Edge {
  explicit Edge(bool with_worker = true) {
    CoordinatorOptions options;
    options.mesh = {"mesh", 0};
    options.make_text = byte_text_factory();
    thread.run([&] {
      node = std::move(*CoordinatorNode::start(thread.strand(), network, random, options));
      if (with_worker)
        worker = std::make_unique<EdgeWorker>(network, thread.strand(), node->mesh());
    });
    auto started = Gateway::start({{"127.0.0.1", 0}, 200ms}, node->dispatcher(), random);
    if (started) gateway = std::move(*started);
  }
  ~Edge() {
    if (gateway) gateway->stop();
    thread.run([&] {
      if (worker) worker->leave();
      node = nullptr;
    });
    thread.stop([&] { worker = nullptr; });
  }
  std::unique_ptr<client::Client> connect() {
    auto c = client::Client::connect(gateway->endpoint());
    return c ? std::move(*c) : nullptr;
  }
  // Waits until `holds` or gives up after a while that is only reached by a hang.
  template <class F>
  static bool eventually(F holds) {
    for (int i = 0; i < 2000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  bool ready(client::Client& c) {
    return eventually([&] {
      auto s = c.status();
      return s && s->ready;
    });
  }

  OsRandom random;
  LocalNetwork network;
  KjThread thread;  // of coordinator and worker
  std::unique_ptr<CoordinatorNode> node;
  std::unique_ptr<EdgeWorker> worker;
  std::unique_ptr<Gateway> gateway;
};

}  // namespace headrace::coordinator::fakes
