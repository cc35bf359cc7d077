#include "protocol/client_loop.h"

#include <utility>

#include "protocol/client_stream.h"
#include "protocol/client_words.h"

namespace headrace::client {
namespace {

constexpr GuardLimits kAnswers{.bytes_max = 8 << 20, .first_bytes_max = 8 << 20};
constexpr Duration kRenewWithin = 5s;   // one try to connect anew
constexpr Duration kCancelWithin = 1s;  // the coordinator, to a cancel

// The system's reason alone, where KJ wraps one: "Connection refused".
std::string reason(const kj::Exception& exception) {
  const std::string text(exception.getDescription().cStr());
  for (const char* known :
       {"Connection refused", "No route to host", "Network is unreachable", "Connection timed out",
        "Connection reset by peer", "Permission denied", "Too many open files"})
    if (text.find(known) != std::string::npos) return known;
  if (text.find("getaddrinfo") != std::string::npos || text.find("DNS") != std::string::npos)
    return "no such host";
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct Loop::Connection {
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

Loop::Loop(Endpoint to) : name_(headrace::to_string(to)), to_(std::move(to)) {}

Loop::~Loop() noexcept {
  thread_.stop([this] {
    for (auto& [id, running] : running_)
      running.state->end.set(error(Errc::kCancelled, "the client ended"));
    // The connection first: a resumable answer was left, not cancelled.
    main_ = nullptr;
    connection_ = nullptr;
    running_.clear();
    tasks_ = nullptr;
    renewing_ = nullptr;
    asked_ = nullptr;
  });
}

api::Headrace::Client& Loop::main() {
  KJ_IF_MAYBE (m, main_) return *m;
  KJ_FAIL_REQUIRE("not connected");
}

kj::TaskSet& Loop::tasks() {
  if (tasks_.get() == nullptr) tasks_ = kj::heap<kj::TaskSet>(*this);
  return *tasks_;
}

kj::Promise<void> Loop::connect_now() {
  auto& network = thread_.io().provider->getNetwork();
  return network.parseAddress(kj_address(to_))
      .then([](kj::Own<kj::NetworkAddress> address) {
        auto connecting = address->connect();
        return connecting.attach(kj::mv(address));
      })
      .then([this](kj::Own<kj::AsyncIoStream> stream) {
        connection_ = kj::heap<Connection>(kj::mv(stream), timer());
        main_ = connection_->bootstrap();
        ++epoch_;
      });
}

Status Loop::connect(Duration deadline) {
  const Result<bool> connected = call<bool>(deadline, [this]() {
    return connect_now().then([]() -> Result<bool> { return true; },
                              [this](kj::Exception&& e) -> Result<bool> {
                                return error(Errc::kUnavailable,
                                             "cannot connect to " + name_ + ": " + reason(e) +
                                                 "; is a coordinator running there?");
                              });
  });
  return connected ? Status{} : connected.error();
}

kj::Promise<void> Loop::sign_of_life() {
  if (asked_epoch_ != epoch_) {
    asked_epoch_ = epoch_;
    const auto over = [this, of = epoch_]() {
      if (asked_epoch_ == of) asked_epoch_ = 0;
    };
    asked_ = main()
                 .helloRequest()
                 .send()
                 .then([over](auto&&) { over(); },
                       [over](kj::Exception&& e) {
                         over();
                         kj::throwRecoverableException(kj::mv(e));
                       })
                 .fork();
  }
  KJ_IF_MAYBE (asked, asked_) return asked->addBranch();
  KJ_UNREACHABLE;
}

kj::Promise<void> Loop::renew(uint64_t lost) {
  if (epoch_ != lost) return kj::READY_NOW;
  if (!renewing_now_) {
    renewing_now_ = true;
    renewing_ = timer()
                    .timeoutAfter(kj_time(kRenewWithin), connect_now())
                    .then([this]() { renewing_now_ = false; },
                          [this](kj::Exception&& e) {
                            renewing_now_ = false;
                            kj::throwFatalException(kj::mv(e));
                          })
                    .fork();
  }
  KJ_IF_MAYBE (renewing, renewing_) return renewing->addBranch();
  return kj::READY_NOW;
}

std::shared_ptr<Generation::State> Loop::begin(Question question,
                                               std::shared_ptr<Generation::State> state) {
  uint64_t id = 0;
  {
    std::lock_guard lock(mutex_);
    id = next_++;
  }
  // The strand outlives the client: a late cancel goes nowhere.
  state->cancel = [this, weak = std::weak_ptr<KjStrand>(thread_.strand()), id] {
    if (auto s = weak.lock()) s->post([this, id] { abandon(id); });
  };
  strand().post([this, id, question = std::move(question), state]() mutable {
    start(id, std::move(question), state);
  });
  return state;
}

void Loop::start(uint64_t id, Question question, const std::shared_ptr<Generation::State>& state) {
  const Duration limit = question.limit;
  auto stream = std::make_unique<Stream>(*this, std::move(question), state);
  auto late = timer().afterDelay(kj_time(limit)).then([this]() -> Result<Answer> {
    return error(Errc::kDeadline, "no answer from " + name_ + " in time");
  });
  // Ends by posting: a promise must not be destroyed by its own continuation.
  auto done = stream->run()
                  .exclusiveJoin(kj::mv(late))
                  .then([](Result<Answer> end) { return end; },
                        [this](kj::Exception&& e) -> Result<Answer> { return status_of(e, name_); })
                  .then([this, id](Result<Answer> end) {
                    strand().post(
                        [this, id, end = std::move(end)]() mutable { finish(id, std::move(end)); });
                  })
                  .eagerlyEvaluate(nullptr);
  running_.emplace(id, Running{state, std::move(stream), kj::mv(done)});
}

void Loop::finish(uint64_t id, Result<Answer> end) {
  auto node = running_.extract(id);
  if (node) node.mapped().state->end.set(std::move(end));
}

// A resumable request would go on if the client ended before its call was seen to be dropped: the
// coordinator is asked by name, and waited for a moment.
void Loop::abandon(uint64_t id) {
  auto node = running_.extract(id);
  if (!node) return;
  const auto state = node.mapped().state;
  const bool resumable = node.mapped().stream->resumable();
  node = {};
  const auto over = [state] { state->end.set(error(Errc::kCancelled, "cancelled")); };
  if (!resumable) return over();
  auto call = main().cancelRequest();
  write(call.initRequest(), state->request_id);
  tasks().add(call.send()
                  .then([](auto&&) {})
                  .exclusiveJoin(timer().afterDelay(kj_time(kCancelWithin)))
                  .then([over]() { over(); }, [over](kj::Exception&&) { over(); }));
}

}  // namespace headrace::client
