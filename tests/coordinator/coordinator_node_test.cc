#include "coordinator/coordinator_node.h"
#include "protocol/codec.h"
#include "protocol/local_network.h"
#include "tests/coordinator/fakes.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

// A worker of a few lines, over the real wire: answers a local Prepare with its prompt's tokens
// plus one each, then stops.
struct EchoWorker {
  EchoWorker(Network& network, std::shared_ptr<ManualStrand> on, const Endpoint& coordinator,
             to_coordinator::Register who)
      : strand(std::move(on)) {
    network.dial(coordinator, 1s, {}, strand, [this, who](Result<std::unique_ptr<Link>> got) {
      REQUIRE(got);
      link = std::move(*got);
      link->start([this](const Bytes& frame) { take(*decode_to_worker(frame)); },
                  [this](const Status&) { closed = true; });
      link->send(encode(ToCoordinator(who)));
    });
  }
  void say(ToCoordinator m) { link->send(encode(m)); }
  void take(const ToWorker& m) {
    if (const auto* no = std::get_if<to_worker::Rejected>(&m)) rejected = no->why;
    if (std::get_if<to_worker::Cancel>(&m)) ++cancels;
    if (const auto* fetch = std::get_if<to_worker::FetchTokenizer>(&m)) {
      const Bytes bytes = tokenizer_bytes();
      say(to_coordinator::TokenizerPiece{
          fetch->digest, fetch->offset, bytes.size(),
          Bytes(bytes.begin() + static_cast<long>(fetch->offset), bytes.end())});
    }
    if (const auto* p = std::get_if<to_worker::Prepare>(&m)) {
      to_coordinator::TokenRun run;
      run.transfer = p->transfer;
      run.attempt = p->attempt;
      for (const Token id : p->prompt) run.ids.push_back(id + 1);
      run.finish = Finish::kStop;
      say(to_coordinator::Tokens{{run}});
    }
  }
  std::shared_ptr<ManualStrand> strand;
  std::unique_ptr<Link> link;
  Status rejected;
  int cancels = 0;
  bool closed = false;
};

CoordinatorOptions options() {
  CoordinatorOptions o;
  o.mesh = {"mesh", 0};
  o.make_text = byte_text_factory();
  return o;
}

}  // namespace

TEST_CASE("node, door, wire and dispatcher answer together") {
  auto strand = std::make_shared<ManualStrand>();
  LocalNetwork network;
  SeededRandom random(1);
  auto node = CoordinatorNode::start(strand, network, random, options());
  REQUIRE(node);
  EchoWorker worker(network, strand, (*node)->mesh(), hello(Role::kBoth, 1));
  auto other = hello(Role::kBoth, 2);
  other.card.name = "Other";
  EchoWorker stranger(network, strand, (*node)->mesh(), other);
  strand->drain();
  CHECK(stranger.closed);
  CHECK(stranger.rejected.message.find("Other") != std::string::npos);

  auto client = std::make_shared<Client>();
  Submit m;
  m.request = {1, 1};
  m.prompt = "HAL";
  m.client = Ref<ClientPort>(strand, client);
  (*node)->dispatcher().tell(std::move(m));
  strand->drain();
  REQUIRE(client->ended);
  CHECK(client->text == "IBM.");
  CHECK(worker.cancels == 1);
  node->reset();
  strand->drain();
  CHECK(worker.closed);
  strand->stop();
}

TEST_CASE("a mesh port in use is one clear line") {
  auto strand = std::make_shared<ManualStrand>();
  LocalNetwork network;
  SeededRandom random(1);
  auto node = CoordinatorNode::start(strand, network, random, options());
  REQUIRE(node);
  auto o = options();
  o.mesh = (*node)->mesh();
  auto second = CoordinatorNode::start(strand, network, random, o);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Errc::kUnavailable);
  CHECK(second.error().message.find(to_string(o.mesh)) != std::string::npos);
  node->reset();
  strand->drain();
  strand->stop();
}

}  // namespace headrace::coordinator
