#include "protocol/client.h"

#include <capnp/rpc-twoparty.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "protocol/api_words.h"
#include "protocol/client_words.h"
#include "protocol/guarded_stream.h"
#include "protocol/kj_strand.h"
#include "protocol/slowdown.h"

namespace headrace::client {
namespace {

constexpr uint64_t kRequestBytesMax = 1 << 20;  // what a coordinator takes
constexpr GuardLimits kAnswers{.bytes_max = 8 << 20};
constexpr Duration kDefaultDeadline = 10min;  // the coordinator's
constexpr Duration kDeadlineMargin = 10s;
// While an answer is awaited the coordinator is asked for a sign of life.
constexpr Duration kPingEvery = 500ms;
constexpr Duration kSilence = 1500ms * kSlowdown;

kj::Duration kj_time(Duration d) { return d.count() * kj::NANOSECONDS; }

// Carries one outcome from the loop's thread to whoever waits.
template <class T>
class Slot {
 public:
  void set(Result<T> value) {
    std::lock_guard lock(mutex_);
    if (value_ || taken_) return;
    value_.emplace(std::move(value));
    there_.notify_all();
  }
  Result<T> take() {
    std::unique_lock lock(mutex_);
    there_.wait(lock, [&] { return value_.has_value(); });
    taken_ = true;
    Result<T> out = std::move(*value_);
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::optional<Result<T>> value_;
  bool taken_ = false;
};

// Errors of a request that is too large to be sent.
template <class Request>
Status check_size(const Request& request) {
  const uint64_t bytes = request.asReader().totalSize().wordCount * sizeof(capnp::word);
  if (bytes + 1024 <= kRequestBytesMax) return {};  // its envelope is smaller than that
  return error(Errc::kInvalid, "request is " + std::to_string(bytes) + " bytes, the limit is " +
                                   std::to_string(kRequestBytesMax));
}

}  // namespace

struct Generation::State {
  std::function<void(const Chunk&)> on_chunk;
  Answer answer;  // grows on the loop's thread
  Slot<Answer> end;
  std::function<void()> cancel;
};

// Everything but `thread` lives on the thread of the loop.
class Client::Loop final : public kj::TaskSet::ErrorHandler {
 public:
  explicit Loop(Endpoint to) : name_(headrace::to_string(to)), to_(std::move(to)) {}
  ~Loop() noexcept {
    thread_.stop([this] {
      for (auto& [id, running] : running_)
        running.state->end.set(error(Errc::kCancelled, "the client ended"));
      running_.clear();
      tasks_ = nullptr;
      main_ = nullptr;
      connection_ = nullptr;
    });
  }

  Status connect(Duration deadline);

  // Runs `body` on the loop and waits for what it promises, at most for `deadline`.
  template <class T, class Body>
  Result<T> call(Duration deadline, Body body) {
    auto slot = std::make_shared<Slot<T>>();
    strand().post([this, slot, deadline, body = std::move(body)]() mutable {
      auto promise = kj::evalNow([&]() -> kj::Promise<Result<T>> { return body(); });
      auto late = timer().afterDelay(kj_time(deadline)).then([this]() -> Result<T> {
        return error(Errc::kDeadline, "no answer from " + name_ + " in time");
      });
      tasks().add(promise.exclusiveJoin(kj::mv(late))
                      .then([slot](Result<T> result) { slot->set(std::move(result)); },
                            [this, slot](kj::Exception&& e) { slot->set(status_of(e, name_)); }));
    });
    return slot->take();
  }

  api::Headrace::Client& main() {
    KJ_IF_MAYBE (m, main_) return *m;
    KJ_FAIL_REQUIRE("not connected");
  }
  std::shared_ptr<Generation::State> generate(GenerateRequest request,
                                              std::function<void(const Chunk&)> on_chunk);

 private:
  struct Connection {
    Connection(kj::Own<kj::AsyncIoStream> s, kj::Timer& timer)
        : stream(kj::mv(s)),
          guarded(*stream, timer, kAnswers),
          network(guarded, capnp::rpc::twoparty::Side::CLIENT),
          rpc(capnp::makeRpcClient(network)) {}
    api::Headrace::Client bootstrap() {
      capnp::MallocMessageBuilder message;
      auto vat = message.initRoot<capnp::rpc::twoparty::VatId>();
      vat.setSide(capnp::rpc::twoparty::Side::SERVER);
      return rpc.bootstrap(vat).castAs<api::Headrace>();
    }
    kj::Own<kj::AsyncIoStream> stream;
    GuardedStream guarded;
    capnp::TwoPartyVatNetwork network;
    capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc;
  };
  struct Running {
    std::shared_ptr<Generation::State> state;
    kj::Promise<void> done;
  };
  class Sink;

  void start(uint64_t id, const GenerateRequest& request,
             const std::shared_ptr<Generation::State>& state);
  void finish(uint64_t id, Result<Answer> end);
  kj::Promise<Result<Answer>> silence();
  KjStrand& strand() { return *thread_.strand(); }
  kj::Timer& timer() { return thread_.io().provider->getTimer(); }
  kj::TaskSet& tasks() {
    if (tasks_.get() == nullptr) tasks_ = kj::heap<kj::TaskSet>(*this);
    return *tasks_;
  }
  void taskFailed(kj::Exception&&) override {}  // every task reports by itself

  std::string name_;
  Endpoint to_;
  std::mutex mutex_;
  uint64_t next_ = 1;  // guarded

  kj::Own<Connection> connection_;
  kj::Maybe<api::Headrace::Client> main_;
  std::map<uint64_t, Running> running_;
  kj::Own<kj::TaskSet> tasks_;
  KjThread thread_;
};

class Client::Loop::Sink final : public api::TokenSink::Server {
 public:
  explicit Sink(std::shared_ptr<Generation::State> state) : state_(std::move(state)) {}

 private:
  kj::Promise<void> write(WriteContext context) override {
    const auto from = context.getParams().getChunk();
    Chunk chunk;
    chunk.position = from.getPosition();
    for (const Token id : from.getIds()) chunk.ids.push_back(id);
    chunk.text = headrace::to_string(from.getText());
    state_->answer.ids.insert(state_->answer.ids.end(), chunk.ids.begin(), chunk.ids.end());
    state_->answer.text += chunk.text;
    if (state_->on_chunk) state_->on_chunk(chunk);
    return kj::READY_NOW;
  }
  std::shared_ptr<Generation::State> state_;
};

Status Client::Loop::connect(Duration deadline) {
  const Result<bool> connected = call<bool>(deadline, [this]() {
    auto& network = thread_.io().provider->getNetwork();
    return network.parseAddress(kj_address(to_))
        .then([](kj::Own<kj::NetworkAddress> address) {
          auto connecting = address->connect();
          return connecting.attach(kj::mv(address));
        })
        .then(
            [this](kj::Own<kj::AsyncIoStream> stream) -> Result<bool> {
              connection_ = kj::heap<Connection>(kj::mv(stream), timer());
              main_ = connection_->bootstrap();
              return true;
            },
            [this](kj::Exception&&) -> Result<bool> {
              return error(Errc::kUnavailable,
                           "cannot connect to " + name_ + ": is a coordinator running there?");
            });
  });
  return connected ? Status{} : connected.error();
}

std::shared_ptr<Generation::State> Client::Loop::generate(
    GenerateRequest request, std::function<void(const Chunk&)> on_chunk) {
  auto state = std::make_shared<Generation::State>();
  state->on_chunk = std::move(on_chunk);
  uint64_t id = 0;
  {
    std::lock_guard lock(mutex_);
    id = next_++;
  }
  // The strand outlives the client: a late cancel goes nowhere.
  state->cancel = [this, weak = std::weak_ptr<KjStrand>(thread_.strand()), id] {
    if (auto s = weak.lock())
      s->post([this, id] { finish(id, error(Errc::kCancelled, "cancelled")); });
  };
  strand().post([this, id, request = std::move(request), state] { start(id, request, state); });
  return state;
}

void Client::Loop::start(uint64_t id, const GenerateRequest& request,
                         const std::shared_ptr<Generation::State>& state) {
  auto call = main().generateRequest();
  write(call.initRequest(), request);
  if (Status status = check_size(call); !status.ok()) return state->end.set(std::move(status));
  call.setSink(kj::heap<Sink>(state));
  const Duration limit = request.deadline.value_or(kDefaultDeadline) + kDeadlineMargin;
  auto late = timer().afterDelay(kj_time(limit)).then([this]() -> Result<Answer> {
    return error(Errc::kDeadline, "no answer from " + name_ + " in time");
  });
  auto promise = call.send().then(
      [state](auto&& response) { return read_end(response.getResult(), state->answer); });
  // Ends by posting: a promise must not be destroyed by its own continuation.
  auto done = promise.exclusiveJoin(kj::mv(late))
                  .exclusiveJoin(silence())
                  .then([](Result<Answer> end) { return end; },
                        [this](kj::Exception&& e) -> Result<Answer> { return status_of(e, name_); })
                  .then([this, id](Result<Answer> end) {
                    strand().post(
                        [this, id, end = std::move(end)]() mutable { finish(id, std::move(end)); });
                  })
                  .eagerlyEvaluate(nullptr);
  running_.emplace(id, Running{state, kj::mv(done)});
}

// Ends once the coordinator owes a sign of life for kSilence. Waited for in two halves: the second
// begins only when this loop runs, so that its own lateness is not taken for the peer's silence.
kj::Promise<Result<Answer>> Client::Loop::silence() {
  return timer()
      .afterDelay(kj_time(kPingEvery))
      .then([this]() {
        auto call = main().helloRequest();
        auto late = timer()
                        .afterDelay(kj_time(kSilence / 2))
                        .then([this]() { return timer().afterDelay(kj_time(kSilence / 2)); })
                        .then([]() { return false; });
        return call.send().then([](auto&&) { return true; }).exclusiveJoin(kj::mv(late));
      })
      .then([this](bool heard) -> kj::Promise<Result<Answer>> {
        if (heard) return silence();
        return Result<Answer>(error(Errc::kDisconnected, name_ + " has given no sign of life for " +
                                                             std::to_string(kSilence / 1ms) +
                                                             " ms; its answer is lost"));
      });
}

void Client::Loop::finish(uint64_t id, Result<Answer> end) {
  auto node = running_.extract(id);
  if (node) node.mapped().state->end.set(std::move(end));
}

Generation::Generation(std::shared_ptr<State> state) : state_(std::move(state)) {}
Generation::~Generation() { cancel(); }
Result<Answer> Generation::wait() { return state_->end.take(); }
void Generation::cancel() { state_->cancel(); }

Result<std::unique_ptr<Client>> Client::connect(const Endpoint& to, Duration deadline) {
  std::unique_ptr<Client> client(new Client(std::make_unique<Loop>(to)));
  if (Status status = client->loop_->connect(deadline); !status.ok()) return status;
  return client;
}

Client::Client(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Client::~Client() = default;

Result<ServerInfo> Client::hello(const std::string& name, Duration deadline) {
  return loop_->call<ServerInfo>(deadline, [this, name] {
    auto call = loop_->main().helloRequest();
    call.setClient(name);
    return call.send().then([](auto&& r) -> Result<ServerInfo> {
      return ServerInfo{headrace::to_string(r.getServer().getVersion()),
                        r.getServer().getProtocol()};
    });
  });
}

Result<std::vector<Model>> Client::models(Duration deadline) {
  return loop_->call<std::vector<Model>>(deadline, [this] {
    return loop_->main().modelsRequest().send().then(
        [](auto&& r) -> Result<std::vector<Model>> { return read_models(r.getModels()); });
  });
}

Result<ClusterStatus> Client::status(Duration deadline) {
  return loop_->call<ClusterStatus>(deadline, [this] {
    return loop_->main().statusRequest().send().then(
        [](auto&& r) -> Result<ClusterStatus> { return read_status(r.getStatus()); });
  });
}

Result<std::vector<Token>> Client::tokenize(const Prompt& prompt, bool special, Duration deadline) {
  using R = Result<std::vector<Token>>;
  return loop_->call<std::vector<Token>>(deadline, [this, prompt, special]() -> kj::Promise<R> {
    auto call = loop_->main().tokenizeRequest();
    write(call.initPrompt(), prompt, special);
    if (Status status = check_size(call); !status.ok()) return R(std::move(status));
    return call.send().then([](auto&& r) -> R { return read_tokens(r.getResult()); });
  });
}

Result<std::string> Client::detokenize(const std::vector<Token>& ids, Duration deadline) {
  using R = Result<std::string>;
  return loop_->call<std::string>(deadline, [this, ids]() -> kj::Promise<R> {
    auto call = loop_->main().detokenizeRequest();
    auto list = call.initIds(static_cast<uint32_t>(ids.size()));
    for (uint32_t i = 0; i < list.size(); ++i) list.set(i, ids[i]);
    if (Status status = check_size(call); !status.ok()) return R(std::move(status));
    return call.send().then([](auto&& r) -> R { return read_text(r.getResult()); });
  });
}

std::unique_ptr<Generation> Client::generate(GenerateRequest request,
                                             std::function<void(const Chunk&)> on_chunk) {
  return std::make_unique<Generation>(loop_->generate(std::move(request), std::move(on_chunk)));
}

}  // namespace headrace::client
