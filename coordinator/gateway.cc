#include "coordinator/gateway.h"

#include <capnp/rpc-twoparty.h>
#include <kj/debug.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "coordinator/gateway_session.h"
#include "protocol/api_words.h"
#include "protocol/guarded_stream.h"
#include "protocol/kj_strand.h"

namespace headrace::coordinator {
namespace {

// Of KJ's "::bind(sockfd, ...): Cannot assign requested address; toString() = ...": what people
// know.
std::string plain_reason(std::string why) {
  if (why.find("in use") != std::string::npos) return "address already in use";
  if (const size_t call = why.find("): "); call != std::string::npos) why.erase(0, call + 3);
  why.erase(std::min(why.find(';'), why.size()));
  while (why.ends_with('.')) why.pop_back();
  if (!why.empty()) why[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(why[0])));
  return why;
}

constexpr Duration kListenWithin = 5s;  // for the name to listen on
constexpr Duration kDrainStep = 20ms;
constexpr Duration kAcceptPause = 100ms;  // after an error such as "too many open files"
// Of a connection's calls that run, until their parameters are taken: two messages of full size.
constexpr size_t kFlowWords = 2 * Gateway::kFrameBytesMax / sizeof(capnp::word);

capnp::ReaderOptions reader_options() {
  capnp::ReaderOptions options;
  options.nestingLimit = 32;  // how much may be visited depends on the message: guarded_stream.h
  return options;
}

constexpr GuardLimits kGuard{.bytes_max = Gateway::kFrameBytesMax,
                             .first_bytes_max = Gateway::kFirstFrameBytesMax,
                             .questions_max = Gateway::kQuestionsMax,
                             .unread_bytes_max = Gateway::kUnreadBytesMax,
                             .write_deadline = Gateway::kUnreadWithin};

template <class T>
void set_option(kj::AsyncIoStream& stream, int level, int name, T value) {
  // A system that refuses serves on with its own value.
  kj::runCatchingExceptions([&]() { stream.setsockopt(level, name, &value, sizeof value); });
}

// What the system holds for a client that does not read, and when it gives a client up whose
// machine has vanished.
void set_options(kj::AsyncIoStream& stream) {
  constexpr int kIdleSeconds = 15, kProbeSeconds = 5, kProbes = 3;
  set_option<int>(stream, SOL_SOCKET, SO_SNDBUF, Gateway::kUnreadBytesMax / 2);  // it doubles it
  set_option<int>(stream, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option<int>(stream, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option<int>(stream, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option<int>(stream, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option<unsigned>(stream, IPPROTO_TCP, TCP_USER_TIMEOUT,
                       static_cast<unsigned>(Gateway::kUnreadWithin / 1ms));
}

// It has hung up already: whatever it said is for nobody.
bool has_left(kj::AsyncIoStream& stream) {
  KJ_IF_MAYBE (fd, stream.getFd()) {
    pollfd look{*fd, POLLRDHUP, 0};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
  return false;
}

// From accept to disconnect. Members in order of need: destroyed in reverse.
struct Connection {
  Connection(kj::Own<kj::AsyncIoStream> s, GatewayCore& core, std::shared_ptr<PeersTotal> total)
      : tab(std::make_shared<PeerTab>(std::move(total), Gateway::kConnectionBytes)),
        stream(kj::mv(s)),
        guarded(*stream, core.timer, kGuard, presence->gone, tab, core.turnstile),
        network(guarded, capnp::rpc::twoparty::Side::SERVER, reader_options()),
        rpc(capnp::makeRpcServer(network,
                                 api::Headrace::Client(make_session(core, presence, tab)))) {
    set_options(*stream);
    rpc.setFlowLimit(kFlowWords);
  }
  ~Connection() noexcept(false) { presence->end(); }  // what dies with it was not dropped
  std::shared_ptr<Presence> presence = std::make_shared<Presence>();
  std::shared_ptr<PeerTab> tab;
  kj::Own<kj::AsyncIoStream> stream;
  GuardedStream guarded;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc;
  kj::Promise<void> over = nullptr;
  kj::Promise<void> mute = nullptr;  // the wait for its first word
};

}  // namespace

// All but `thread_` lives on the KJ thread.
class Gateway::Door {
 public:
  Door(GatewayOptions options, Ref<Dispatcher> dispatcher, Random& random)
      : options_(std::move(options)), dispatcher_(std::move(dispatcher)), random_(random) {}

  Result<Endpoint> open();
  void stop();
  uint64_t offenders() const { return offenders_; }

 private:
  void listening(kj::Own<kj::ConnectionReceiver> receiver);
  kj::Promise<void> accept_next();
  void take(kj::Own<kj::AsyncIoStream> stream);
  bool make_room();
  void over();
  void shed();
  void drop(uint64_t id);
  void drain(Instant until, std::shared_ptr<std::promise<void>> done);
  kj::Timer& timer() { return thread_.io().provider->getTimer(); }

  GatewayOptions options_;
  Ref<Dispatcher> dispatcher_;
  Random& random_;

  std::unique_ptr<GatewayCore> core_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  kj::Promise<void> accepting_ = nullptr;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::shared_ptr<PeersTotal> total_ = std::make_shared<PeersTotal>();
  bool shedding_ = false;  // posted
  uint32_t accepted_ = 0;  // since the last pause
  uint64_t next_ = 1;
  std::atomic<uint64_t> offenders_ = 0;
  Timer drain_timer_;
  bool stopped_ = false;
  KjThread thread_;
};

Result<Endpoint> Gateway::Door::open() {
  auto outcome = std::make_shared<std::promise<Result<Endpoint>>>();
  auto future = outcome->get_future();
  thread_.run([&] {
    total_->limit = kHeldBytesMax;
    total_->over = [this] { over(); };
    core_.reset(new GatewayCore{thread_.strand(),
                                timer(),
                                dispatcher_,
                                random_,
                                {thread_.strand(), timer(), dispatcher_},
                                std::make_shared<Turnstile>(timer(), kTurnsAtOnce)});
    const std::string where = to_string(options_.listen);
    auto& network = thread_.io().provider->getNetwork();
    auto listening_now =
        network.parseAddress(kj_address(options_.listen))
            .then([this, outcome](kj::Own<kj::NetworkAddress> address) {
              listening(address->listen());
              outcome->set_value(
                  Endpoint{options_.listen.host, static_cast<uint16_t>(receiver_->getPort())});
            });
    accepting_ = timer()
                     .timeoutAfter(kListenWithin.count() * kj::NANOSECONDS, kj::mv(listening_now))
                     .then([this]() { return accept_next(); })
                     .eagerlyEvaluate([this, outcome, where](kj::Exception&& e) {
                       if (receiver_.get()) {
                         KJ_LOG(ERROR, "accepting ended", e);
                         return;
                       }
                       outcome->set_value(
                           error(Errc::kUnavailable, "cannot listen on " + where + ": " +
                                                         plain_reason(e.getDescription().cStr())));
                     });
  });
  return future.get();
}

void Gateway::Door::listening(kj::Own<kj::ConnectionReceiver> receiver) {
  receiver_ = kj::mv(receiver);
}

kj::Promise<void> Gateway::Door::accept_next() {
  if (accepted_ >= kAcceptsAtOnce) {
    accepted_ = 0;
    return timer().afterDelay(0 * kj::NANOSECONDS).then([this]() { return accept_next(); });
  }
  ++accepted_;
  return receiver_->accept()
      .then(
          [this](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
            if (!has_left(*stream)) take(kj::mv(stream));
            return kj::READY_NOW;
          },
          [this](kj::Exception&&) -> kj::Promise<void> {
            return timer().afterDelay(kAcceptPause.count() * kj::NANOSECONDS);
          })
      .then([this]() { return accept_next(); });
}

void Gateway::Door::take(kj::Own<kj::AsyncIoStream> stream) {
  if (connections_.size() >= kConnectionsMax && !make_room()) return;  // its end closes it
  const uint64_t id = next_++;
  auto connection = std::make_unique<Connection>(kj::mv(stream), *core_, total_);
  // Ends by posting: a promise must not be destroyed by its own continuation.
  const auto end = [this, id] { thread_.strand()->post([this, id] { drop(id); }); };
  connection->over = connection->network.onDisconnect()
                         .then([end] { end(); }, [end](kj::Exception&&) { end(); })
                         .eagerlyEvaluate(nullptr);
  // One who never speaks must not hold a place for long.
  connection->mute = timer()
                         .afterDelay(Gateway::kFirstWordWithin.count() * kj::NANOSECONDS)
                         .then([end, &guarded = connection->guarded] {
                           if (!guarded.spoken_to()) end();
                         })
                         .eagerlyEvaluate(nullptr);
  connections_.emplace(id, std::move(connection));
}

// Whoever says something before this many others have come keeps its place.
bool Gateway::Door::make_room() {
  for (const auto& [id, connection] : connections_) {
    if (connection->guarded.spoken_to()) continue;
    drop(id);
    return true;
  }
  return false;
}

// Called in the middle of whatever made the last byte: only posts.
void Gateway::Door::over() {
  if (std::exchange(shedding_, true)) return;
  thread_.strand()->post([this] { shed(); });
}

// Closes those that hold most until there is some room again.
void Gateway::Door::shed() {
  shedding_ = false;
  while (total_->bytes > kHeldBytesMax / 8 * 7 && !connections_.empty()) {
    const auto worst = std::max_element(connections_.begin(), connections_.end(),
                                        [](const auto& a, const auto& b) {
                                          return a.second->tab->bytes() < b.second->tab->bytes();
                                        });
    ++offenders_;
    drop(worst->first);
  }
}

void Gateway::Door::drop(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if (it->second->guarded.offended()) ++offenders_;
  it->second->tab->close();
  connections_.erase(it);
}

void Gateway::Door::drain(Instant until, std::shared_ptr<std::promise<void>> done) {
  if (core_->open_streams == 0 || thread_.strand()->now() >= until) return done->set_value();
  drain_timer_ = thread_.strand()->after(kDrainStep, [this, until, done] { drain(until, done); });
}

void Gateway::Door::stop() {
  if (std::exchange(stopped_, true)) return;
  auto drained = std::make_shared<std::promise<void>>();
  thread_.strand()->post([this, drained] {
    accepting_ = nullptr;
    receiver_ = nullptr;
    drain(thread_.strand()->now() + options_.drain, drained);
  });
  drained->get_future().wait();
  thread_.stop([this] {
    drain_timer_ = {};
    total_->over = nullptr;
    connections_.clear();
    core_->turnstile = nullptr;
    core_->status.stop();
  });
}

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options, Ref<Dispatcher> dispatcher,
                                                Random& random) {
  auto door = std::make_unique<Door>(std::move(options), std::move(dispatcher), random);
  Result<Endpoint> endpoint = door->open();
  std::unique_ptr<Gateway> gateway(new Gateway(std::move(door)));
  if (!endpoint) return endpoint.error();
  gateway->endpoint_ = *endpoint;
  return gateway;
}

Gateway::Gateway(std::unique_ptr<Door> door) : door_(std::move(door)) {}
Gateway::~Gateway() { stop(); }
void Gateway::stop() { door_->stop(); }
uint64_t Gateway::offenders() const { return door_->offenders(); }

}  // namespace headrace::coordinator
