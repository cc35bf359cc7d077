#pragma once

#include <memory>

#include "protocol/link.h"

namespace headrace {

struct LocalHub;

// The Network of one process: the same rules as over TCP (order, bounds, closing, callbacks on the
// strands given), in memory, between any kinds of strand. Endpoints are names of this network only
// and reach no other; a dial to one on which nobody listens is refused at once. Frames sent before
// a close arrive before the closing. Thread-safe; links may outlive it.
class LocalNetwork final : public Network {
 public:
  LocalNetwork();
  ~LocalNetwork() override;

  void dial(const Endpoint& to, Duration deadline, LinkLimits limits,
            std::shared_ptr<Strand> strand,
            std::function<void(Result<std::unique_ptr<Link>>)> done) override;
  Result<std::unique_ptr<Listener>> listen(
      const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
      std::function<void(std::unique_ptr<Link>)> on_accept) override;

 private:
  std::shared_ptr<LocalHub> hub_;
};

}  // namespace headrace
