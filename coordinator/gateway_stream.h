#pragma once

#include <kj/async.h>

#include <deque>
#include <memory>
#include <optional>

#include "coordinator/gateway_session.h"
#include "coordinator/standing.h"

namespace headrace::coordinator {

// One generate or resume call: an actor on KJ's loop that writes chunks into the client's sink and
// gives credit as the writes return. What its end before the answer's end means depends on why: a
// call that was dropped, or whose sink threw, abandons the request; one that died with its
// connection detaches from it, so that a resumable request goes on.
// `standing` was asked for this one.
class GatewayStream final : public ClientPort, private kj::TaskSet::ErrorHandler {
 public:
  GatewayStream(GatewayCore& core, std::shared_ptr<const bool> gone,
                std::shared_ptr<Standing> standing, std::shared_ptr<PeerTab> tab, RequestId id,
                uint64_t owner, api::TokenSink::Client sink,
                kj::Own<kj::PromiseFulfiller<Ended>> done);
  ~GatewayStream() noexcept override;

  void on(Chunk chunk) override;
  void on(Ended ended) override;

 private:
  struct Write {
    uint32_t end;  // position behind its last token
    bool returned;
    uint64_t bytes;  // on the tab until the client has taken it
  };

  void leave(bool lost);  // once: the rest is of no use to this client
  void returned(uint64_t number);
  void taskFailed(kj::Exception&& why) override;  // of a write
  void complete_if_written();
  void complete();

  GatewayCore& core_;
  std::shared_ptr<const bool> gone_;
  std::shared_ptr<Standing> standing_;
  std::shared_ptr<PeerTab> tab_;
  RequestId id_;
  uint64_t owner_;
  api::TokenSink::Client sink_;
  kj::Own<kj::PromiseFulfiller<Ended>> done_;
  std::deque<Write> pending_;  // at most the credit of a stream
  uint64_t first_ = 0;         // number of pending_.front()
  std::optional<Ended> ended_;
  bool heard_ = false;   // the client took something
  bool broken_ = false;  // a write failed
  bool left_ = false;
  bool completed_ = false;
  Timer late_;
  kj::TaskSet writes_;
};

}  // namespace headrace::coordinator
