#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "deploy/cli/transport.h"
#include "protocol/link.h"
#include "protocol/result.h"
#include "protocol/strand.h"

namespace headrace::cli {

// One end of hand-offs that carry nothing of worth, by the worker's own code from block to block:
// what `doctor` tests links with. Both ends know the one grant, so no coordinator is needed. Its
// functions are for one thread, not the runtime's.
class LinkEnd {
 public:
  // No step of a hand-off is as slow; what has not ended by then is given up.
  static constexpr Duration kWithin = 40s;
  static constexpr uint32_t kMibMax = 4096;

  struct Sent {
    bool nccl = false;
    uint64_t bytes = 0;
    double seconds = 0;  // on the wire
  };

  // With blocks of `mib` MiB in all on a device, see --device. Both ends: the same number.
  static Result<std::unique_ptr<LinkEnd>> open(const std::string& device,
                                               const TransportOptions& transport, uint32_t mib);
  ~LinkEnd();
  LinkEnd(const LinkEnd&) = delete;

  // How it would hand off: see TransportOptions::Choice.
  const std::string& sentence() const;
  // Takes hand-offs at this address from now on, one at a time; the real address.
  Result<Endpoint> answer(const Endpoint& at);
  // All blocks to the one that answers there. `lanes`: over NCCL if both ends take it, else tcp.
  Result<Sent> send(const Endpoint& to, bool lanes);

 private:
  struct Body;
  explicit LinkEnd(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace headrace::cli
