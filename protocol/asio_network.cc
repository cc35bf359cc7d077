#include <netdb.h>

#include <condition_variable>
#include <cstring>
#include <optional>

#include "protocol/asio_core.h"
#include "protocol/check.h"

namespace headrace {
namespace {

using Address = asio::ip::tcp::endpoint;
constexpr Duration kAcceptRetry = 100ms;  // after the system ran out of descriptors
constexpr size_t kAddressesMax = 16;      // of one name

struct Lookup {
  std::string problem;  // empty: found
  std::vector<Address> addresses;
};

// An address written in figures needs no lookup.
std::optional<Lookup> numeric(const Endpoint& endpoint) {
  AsioError failed;
  const auto address = asio::ip::make_address(endpoint.host, failed);
  if (failed) return std::nullopt;
  return Lookup{"", {Address(address, endpoint.port)}};
}

Lookup look_up(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &list);
  if (failed) return {std::string("cannot resolve the name: ") + gai_strerror(failed), {}};
  Lookup found;
  for (addrinfo* a = list; a && found.addresses.size() < kAddressesMax; a = a->ai_next) {
    Address address;
    if (a->ai_addrlen > address.capacity()) continue;
    std::memcpy(address.data(), a->ai_addr, a->ai_addrlen);
    address.resize(a->ai_addrlen);
    address.port(endpoint.port);
    found.addresses.push_back(address);
  }
  freeaddrinfo(list);
  return found;
}

// Resolves on a thread of its own, since the system's call knows no deadline; a late answer falls
// on `done`, which must be able to take it from any thread.
void look_up_apart(const std::shared_ptr<AsioCore>& core, const Endpoint& endpoint,
                   std::function<void(Lookup)> done) {
  if (core->lookups.fetch_add(1) >= AsioNetwork::kLookupsMax) {
    core->lookups.fetch_sub(1);
    return done(
        {"more than " + std::to_string(AsioNetwork::kLookupsMax) + " names are being resolved",
         {}});
  }
  std::thread([core, endpoint, done = std::move(done)]() mutable {
    Lookup found = look_up(endpoint);
    core->lookups.fetch_sub(1);
    done(std::move(found));
    done = nullptr;
  }).detach();
}

// One dial: lookup, then each address in turn, under one deadline.
class Dial final : public std::enable_shared_from_this<Dial> {
 public:
  using Done = std::function<void(Result<std::unique_ptr<Link>>)>;
  Dial(std::shared_ptr<AsioStrand> strand, Endpoint to, LinkLimits limits, Done done)
      : strand_(std::move(strand)),
        to_(std::move(to)),
        limits_(limits),
        done_(std::move(done)),
        socket_(strand_->executor()) {}

  void start(const std::shared_ptr<AsioCore>& core, Duration deadline) {
    deadline_ = strand_->after(deadline, [self = shared_from_this(), deadline] {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline);
      self->end(error(Errc::kDeadline,
                      self->what() + "no answer within " + std::to_string(ms.count()) + " ms"));
    });
    if (auto known = numeric(to_)) return try_all(std::move(*known));
    look_up_apart(core, to_, [self = shared_from_this()](Lookup found) {
      self->strand_->post([self, found = std::move(found)] { self->try_all(found); });
    });
  }

 private:
  std::string what() const { return "cannot connect to " + to_string(to_) + ": "; }

  void try_all(Lookup found) {
    if (!found.problem.empty()) return end(error(Errc::kUnavailable, what() + found.problem));
    addresses_ = std::move(found.addresses);
    try_next("no address");
  }

  void try_next(const std::string& problem) {
    if (!done_) return;
    if (next_ == addresses_.size()) return end(error(Errc::kUnavailable, what() + problem));
    AsioError ignored;
    socket_.close(ignored);
    socket_.async_connect(addresses_[next_++],
                          [self = shared_from_this()](const AsioError& failed) {
                            if (failed) return self->try_next(reason(failed));
                            self->connected();
                          });
  }

  void connected() {
    if (!done_) return;
    AsioError failed;
    // A dial to a free port of this machine may, by chance, meet itself.
    const bool itself = socket_.local_endpoint(failed) == socket_.remote_endpoint(failed);
    if (itself) return try_next("connection refused");
    end(make_asio_link(strand_, std::move(socket_), limits_));
  }

  void end(Result<std::unique_ptr<Link>> result) {
    if (!done_) return;
    deadline_.cancel();
    AsioError ignored;
    if (!result) socket_.close(ignored);
    std::exchange(done_, nullptr)(std::move(result));
  }

  std::shared_ptr<AsioStrand> strand_;
  const Endpoint to_;
  const LinkLimits limits_;
  Done done_;  // empty once called
  Socket socket_;
  Timer deadline_;
  std::vector<Address> addresses_;
  size_t next_ = 0;
};

// An open port; kept alive by its pending accept.
class Door final : public std::enable_shared_from_this<Door> {
 public:
  using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, AsioExecutor>;
  Door(std::shared_ptr<AsioStrand> strand, LinkLimits limits,
       std::function<void(std::unique_ptr<Link>)> on_accept)
      : strand_(std::move(strand)),
        limits_(limits),
        on_accept_(std::move(on_accept)),
        acceptor_(strand_->executor()),
        retry_(strand_->executor()) {}

  // Empty when it is open.
  std::string open(const Address& at) {
    AsioError failed;
    acceptor_.open(at.protocol(), failed);
    if (!failed) acceptor_.set_option(asio::socket_base::reuse_address(true), failed);
    if (!failed) acceptor_.bind(at, failed);
    if (!failed) acceptor_.listen(asio::socket_base::max_listen_connections, failed);
    if (!failed) port_ = acceptor_.local_endpoint(failed).port();
    if (!failed) return "";
    AsioError ignored;
    acceptor_.close(ignored);
    return reason(failed);
  }

  void accept() {
    if (closed_) return;
    acceptor_.async_accept(
        strand_->executor(), [self = shared_from_this()](const AsioError& failed, Socket socket) {
          if (self->closed_) return;
          if (failed) return self->retry();
          self->on_accept_(make_asio_link(self->strand_, std::move(socket), self->limits_));
          self->accept();
        });
  }

  void close() {
    closed_ = true;
    AsioError ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    // It may be running, and may own the listener.
    strand_->post([self = shared_from_this()] { self->on_accept_ = nullptr; });
  }

  uint16_t port() const { return port_; }

 private:
  // A connection that broke while it waited, or no descriptor is free: neither ends the door.
  void retry() {
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([self = shared_from_this()](const AsioError&) { self->accept(); });
  }

  std::shared_ptr<AsioStrand> strand_;
  const LinkLimits limits_;
  std::function<void(std::unique_ptr<Link>)> on_accept_;
  Acceptor acceptor_;
  AsioTimer retry_;
  uint16_t port_ = 0;
  bool closed_ = false;
};

class AsioListener final : public Listener {
 public:
  AsioListener(Endpoint at, std::shared_ptr<AsioStrand> strand, std::shared_ptr<Door> door)
      : at_(std::move(at)), strand_(std::move(strand)), door_(std::move(door)) {}
  ~AsioListener() override {
    if (strand_->here()) {
      door_->close();
    } else {
      strand_->post([door = door_] { door->close(); });
    }
  }
  Endpoint endpoint() const override { return at_; }

 private:
  Endpoint at_;
  std::shared_ptr<AsioStrand> strand_;
  std::shared_ptr<Door> door_;
};

// Blocks for the answer, since listen() has to give one.
Lookup look_up_now(const std::shared_ptr<AsioCore>& core, const Endpoint& at) {
  if (auto known = numeric(at)) return *known;
  struct Slot {
    std::mutex mutex;
    std::condition_variable filled;
    std::optional<Lookup> found;
  };
  auto slot = std::make_shared<Slot>();
  look_up_apart(core, at, [slot](Lookup found) {
    std::lock_guard lock(slot->mutex);
    slot->found = std::move(found);
    slot->filled.notify_all();
  });
  std::unique_lock lock(slot->mutex);
  slot->filled.wait_for(lock, AsioNetwork::kListenLookup, [&] { return slot->found.has_value(); });
  return slot->found.value_or(Lookup{"the name was not resolved in time", {}});
}

}  // namespace

void AsioNetwork::dial(const Endpoint& to, Duration deadline, LinkLimits limits,
                       std::shared_ptr<Strand> strand,
                       std::function<void(Result<std::unique_ptr<Link>>)> done) {
  auto ours = asio_strand(strand);
  auto dial = std::make_shared<Dial>(ours, to, limits, std::move(done));
  ours->post([dial, core = core_, deadline] { dial->start(core, deadline); });
}

Result<std::unique_ptr<Listener>> AsioNetwork::listen(
    const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
    std::function<void(std::unique_ptr<Link>)> on_accept) {
  const std::string what = "cannot listen on " + to_string(at) + ": ";
  if (!core_->enter()) return error(Errc::kUnavailable, what + "the runtime has ended");
  struct Leave {
    AsioCore& core;
    ~Leave() { core.leave(); }
  } leave{*core_};
  const Lookup found = look_up_now(core_, at);
  if (!found.problem.empty()) return error(Errc::kUnavailable, what + found.problem);
  if (found.addresses.empty()) return error(Errc::kUnavailable, what + "no address");
  auto ours = asio_strand(strand);
  auto door = std::make_shared<Door>(ours, limits, std::move(on_accept));
  const std::string problem = door->open(found.addresses.front());
  if (!problem.empty()) return error(Errc::kUnavailable, what + problem);
  ours->post([door] { door->accept(); });
  return std::unique_ptr<Listener>(
      std::make_unique<AsioListener>(Endpoint{at.host, door->port()}, ours, door));
}

}  // namespace headrace
