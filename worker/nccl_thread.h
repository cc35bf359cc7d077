#pragma once

#include <memory>

#include "protocol/strand.h"
#include "worker/nccl_driver.h"
#include "worker/nccl_library.h"

namespace headrace::worker {

// The library on a thread of its own: all calls come from there, one at a time, in the order in
// which they were asked for, and what was begun is polled. Aborts have a thread each, so that one
// that hangs holds up none. Whatever hangs, no call of this class waits for it.
class NcclThread final : public NcclDriver {
 public:
  // Calls back on the strand.
  NcclThread(std::shared_ptr<Strand> strand, std::unique_ptr<NcclLibrary> library);
  // Aborts what is open. What has not ended after `kLeaveAfter` is left to the process's end.
  ~NcclThread() override;
  static constexpr Duration kLeaveAfter = 5s;

  uint32_t version() const override;
  void mint(std::function<void(Result<NcclId>)> done) override;
  void open(CommNo comm, const CommName& name, const NcclId& id, LaneEnd end, Done done) override;
  void send(CommNo comm, std::span<const std::byte> from, Done done) override;
  void receive(CommNo comm, std::span<std::byte> to, Done done) override;
  void abort(CommNo comm, Done done) override;

 private:
  struct Body;  // shared with the threads, which may outlive this
  std::shared_ptr<Body> body_;
};

}  // namespace headrace::worker
