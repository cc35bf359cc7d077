#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/link.h"

namespace headrace::coordinator::fakes {

// A TCP proxy on loopback whose connections a test can cut, and that can refuse new ones.
class CutProxy {
 public:
  explicit CutProxy(Endpoint to) : to_(std::move(to)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at);
    listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~CutProxy() {
    over_ = true;
    thread_.join();
    close_all();
    close(listener_);
  }
  Endpoint endpoint() const { return {"127.0.0.1", port_}; }
  void cut() { cut_ = true; }
  void refuse(bool refuse) { refuse_ = refuse; }
  int accepted() const { return accepted_; }

 private:
  void run() {
    while (!over_) {
      if (cut_.exchange(false)) close_all();
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      for (const auto& [a, b] : pairs_) {
        fds.push_back({a, POLLIN, 0});
        fds.push_back({b, POLLIN, 0});
      }
      if (poll(fds.data(), fds.size(), 5) <= 0) continue;
      size_t i = 1;
      for (auto it = pairs_.begin(); it != pairs_.end(); i += 2) {
        const auto pair = *it++;
        const bool over = (fds[i].revents != 0 && !pump(pair.first, pair.second)) ||
                          (fds[i + 1].revents != 0 && !pump(pair.second, pair.first));
        if (!over) continue;
        close(pair.first);
        close(pair.second);
        pairs_.remove(pair);
      }
      if (fds[0].revents != 0) take();
    }
  }
  static bool pump(int from, int to) {
    char buffer[16384];
    const ssize_t n = recv(from, buffer, sizeof buffer, 0);
    return n > 0 && send(to, buffer, static_cast<size_t>(n), MSG_NOSIGNAL) == n;
  }
  void take() {
    const int client = accept(listener_, nullptr, nullptr);
    if (refuse_) {
      close(client);
      return;
    }
    ++accepted_;
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(to_.port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(server, reinterpret_cast<sockaddr*>(&at), sizeof at);
    pairs_.emplace_back(client, server);
  }
  void close_all() {
    for (const auto& [a, b] : pairs_) {
      close(a);
      close(b);
    }
    pairs_.clear();
  }

  Endpoint to_;
  int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> over_ = false, cut_ = false, refuse_ = false;
  std::atomic<int> accepted_ = 0;
  std::list<std::pair<int, int>> pairs_;  // of the thread
  std::thread thread_;
};

}  // namespace headrace::coordinator::fakes
