#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "protocol/ids.h"
#include "protocol/result.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

using NcclId = std::array<std::byte, 128>;  // what two ranks meet by
enum class CommNo : uint32_t {};  // the caller's name for a communicator; never used twice

// What a communicator is called at both ends.
struct CommName {
  uint64_t prefill = 0;  // devices (LaneTerms)
  uint64_t decode = 0;
  uint32_t epoch = 0;
  bool operator==(const CommName&) const = default;
};

// The library as NcclPairs sees it: everything is begun here and ends with a callback, posted to
// the strand, or never. Nothing here has a deadline: the caller has. Bodies: NcclThread (the real
// one), the simulator's, which hangs and lies.
class NcclDriver {
 public:
  using Done = std::function<void(Status)>;
  virtual ~NcclDriver() = default;
  virtual uint32_t version() const = 0;  // 22809; 0: there is no library
  // An id costs the process a thread and a socket until both ranks have come.
  virtual void mint(std::function<void(Result<NcclId>)> done) = 0;
  // Communicator of two ranks, the prefill worker's being 0.
  virtual void open(CommNo comm, const CommName& name, const NcclId& id, LaneEnd end,
                    Done done) = 0;
  // To or from the other rank. Those of one device run in the order of these calls, whatever their
  // communicators, and are answered in it. The memory is in use until `done`, or until the abort
  // is.
  virtual void send(CommNo comm, std::span<const std::byte> from, Done done) = 0;
  virtual void receive(CommNo comm, std::span<std::byte> to, Done done) = 0;
  // Ends the communicator, whatever it is doing. When done nothing of it is under way, unless that
  // failed: then nobody knows. No other callback of it follows this call. Several run beside each
  // other.
  virtual void abort(CommNo comm, Done done) = 0;
};

}  // namespace headrace::worker
