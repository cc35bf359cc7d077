#include "protocol/status_server.h"

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cctype>
#include <list>
#include <thread>

namespace headrace {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

constexpr Duration kAcceptRetry = 100ms;          // after the system ran out of descriptors
constexpr size_t kLingerBytes = size_t{1} << 20;  // thrown away at most, per connection
constexpr std::string_view kHeadEnd = "\r\n\r\n";

class Connection;

// All on the one thread of the server.
struct Loop {
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer retry{io};
  StatusPages pages;
  std::list<std::shared_ptr<Connection>> connections;  // oldest first

  void accept();
  void make_room();
  void forget(const Connection* connection);
};

// Reads a head, answers, waits for the client to close. Each stage has its own deadline.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, tcp::socket socket)
      : loop_(loop), socket_(std::move(socket)), deadline_(loop.io) {}

  void start() {
    expire(StatusServer::kHeadWithin);
    read();
  }
  bool asking() const { return answer_.empty(); }
  void close() {
    Error ignored;
    deadline_.cancel();
    socket_.close(ignored);
  }

 private:
  // Closing makes what is pending end with an error, which ends the connection.
  void expire(Duration within) {
    deadline_.expires_after(within);
    deadline_.async_wait([self = shared_from_this()](const Error& cancelled) {
      if (!cancelled) self->close();
    });
  }

  void read() {
    socket_.async_read_some(asio::buffer(piece_),
                            [self = shared_from_this()](const Error& failed, size_t bytes) {
                              if (failed) return self->end();
                              self->head_.append(self->piece_.data(), bytes);
                              self->look();
                            });
  }

  void look() {
    const size_t end = head_.find(kHeadEnd);
    if (end != head_.npos && end + kHeadEnd.size() <= kStatusHeadMax) {
      return answer(
          status_answer(std::string_view(head_).substr(0, end + kHeadEnd.size()), loop_.pages));
    }
    if (end != head_.npos || head_.size() > kStatusHeadMax) {
      return answer(status_answer_too_long(head_));
    }
    // HTTP/0.9 and the like: one line without a version gets its refusal now, not at the deadline.
    const size_t line = head_.find('\n');
    if (line != head_.npos && head_.find(" HTTP/") >= line) {
      return answer(status_answer(head_, loop_.pages));
    }
    read();
  }

  void answer(std::string text) {
    answer_ = std::move(text);
    expire(StatusServer::kAnswerWithin);
    asio::async_write(socket_, asio::buffer(answer_),
                      [self = shared_from_this()](const Error& failed, size_t) {
                        if (failed) return self->end();
                        Error ignored;
                        self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
                        self->expire(StatusServer::kLingerWithin);
                        self->linger();
                      });
  }

  // Closing over unread bytes would reset the connection and may take the answer with it.
  void linger() {
    socket_.async_read_some(asio::buffer(piece_),
                            [self = shared_from_this()](const Error& failed, size_t bytes) {
                              self->lingered_ += bytes;
                              if (failed || self->lingered_ > kLingerBytes) return self->end();
                              self->linger();
                            });
  }

  void end() {
    close();
    loop_.forget(this);
  }

  Loop& loop_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::array<char, 4096> piece_;
  std::string head_;
  std::string answer_;
  size_t lingered_ = 0;
};

void Loop::accept() {
  acceptor.async_accept([this](const Error& failed, tcp::socket socket) {
    if (failed == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (failed) {  // a connection that broke while it waited, or no descriptor is free
      retry.expires_after(kAcceptRetry);
      return retry.async_wait([this](const Error& cancelled) {
        if (!cancelled) accept();
      });
    }
    make_room();
    connections.push_back(std::make_shared<Connection>(*this, std::move(socket)));
    connections.back()->start();
    accept();
  });
}

// One that asks at once is never the oldest for long.
void Loop::make_room() {
  if (connections.size() < StatusServer::kConnectionsMax) return;
  auto victim = connections.begin();
  while (victim != connections.end() && !(*victim)->asking()) ++victim;
  if (victim == connections.end()) victim = connections.begin();
  (*victim)->close();
  connections.erase(victim);
}

void Loop::forget(const Connection* connection) {
  connections.remove_if([&](const auto& c) { return c.get() == connection; });
}

Status open(tcp::acceptor& acceptor, const Endpoint& at) {
  Error failed;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found =
      resolver.resolve(at.host, std::to_string(at.port), tcp::resolver::passive, failed);
  if (!failed && found.empty()) failed = asio::error::host_not_found;
  if (!failed) {
    const tcp::endpoint address = found.begin()->endpoint();
    acceptor.open(address.protocol(), failed);
    if (!failed) acceptor.set_option(asio::socket_base::reuse_address(true), failed);
    if (!failed) acceptor.bind(address, failed);
    if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  }
  if (!failed) return {};
  std::string why = failed.message();
  if (!why.empty()) why[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(why[0])));
  return error(Errc::kUnavailable, "cannot listen on " + to_string(at) + ": " + why);
}

}  // namespace

struct StatusServer::Body {
  Endpoint endpoint;
  Loop loop;
  std::thread thread;
};

StatusServer::StatusServer(std::unique_ptr<Body> body) : body_(std::move(body)) {}

Result<std::unique_ptr<StatusServer>> StatusServer::start(const Endpoint& at, StatusPages pages) {
  auto body = std::make_unique<Body>();
  body->loop.pages = std::move(pages);
  const Status opened = open(body->loop.acceptor, at);
  if (!opened.ok()) return opened;
  Error failed;
  body->endpoint = {at.host, body->loop.acceptor.local_endpoint(failed).port()};
  body->loop.accept();
  body->thread = std::thread([loop = &body->loop] { loop->io.run(); });
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(body)));
}

StatusServer::~StatusServer() {
  body_->loop.io.stop();
  body_->thread.join();
  // What is pending refers to the connections, these to the loop: they go first.
  body_->loop.connections.clear();
}

Endpoint StatusServer::endpoint() const { return body_->endpoint; }

}  // namespace headrace
