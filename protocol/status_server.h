#pragma once

#include <memory>

#include "protocol/link.h"
#include "protocol/status_pages.h"

namespace headrace {

// HTTP for a Prometheus, for health checks and for people, on a thread of its own: it never blocks
// an actor, and an actor that hangs never blocks it. One request a connection, answered whole, then
// closed; status_pages.h says what is answered.
//
// Hostile clients: at most kConnectionsMax at a time, and at one more the oldest that has not yet
// asked is closed; a head has kHeadWithin to come, an answer kAnswerWithin to be taken.
class StatusServer {
 public:
  static constexpr size_t kConnectionsMax = 32;
  static constexpr Duration kHeadWithin = 5s;
  static constexpr Duration kAnswerWithin = 5s;
  static constexpr Duration kLingerWithin = 1s;  // for the client to take the rest and close

  // Listens at once. kUnavailable with one line that names the address when that fails.
  static Result<std::unique_ptr<StatusServer>> start(const Endpoint& at, StatusPages pages);
  ~StatusServer();  // open connections are closed; the pages' functions are not called again
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  Endpoint endpoint() const;  // the real port

 private:
  struct Body;
  explicit StatusServer(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace headrace
