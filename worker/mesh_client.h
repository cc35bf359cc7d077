#pragma once

#include <functional>
#include <memory>

#include "protocol/actor.h"
#include "protocol/link.h"
#include "protocol/messages.h"
#include "protocol/random.h"
#include "worker/worker.h"

namespace headrace::worker {

// What whoever started the worker may want to know. Called on the worker's strand.
struct MeshEvents {
  std::function<void(WorkerId)> joined;
  std::function<void(Status)> lost;      // it tries again by itself
  std::function<void(Status)> rejected;  // it does not: another model, another layout
};

// The worker's end of its link to the coordinator: dials with back-off, mints an incarnation for
// each connection, turns frames into messages and back, and gives the link up when it is closed,
// says nothing for `silence`, or speaks what we cannot read. When we were held up ourselves, what
// waits to be read gets its turn before that counts. An actor on the worker's strand.
class MeshClient final : public Uplink, public std::enable_shared_from_this<MeshClient> {
 public:
  static constexpr Duration kDialDeadline = 2s;
  static constexpr Duration kWelcomeDeadline = 5s;
  static constexpr Duration kBackoffMin =
      50ms;  // doubled at each failure, plus up to half at random
  static constexpr Duration kBackoffMax = 1s;
  static constexpr Duration kSweepEvery = 100ms;
  static constexpr Duration kSweepPause = 10ms;  // before a sweep that comes late

  MeshClient(std::shared_ptr<Strand> strand, Network& network, Random& random, Endpoint coordinator,
             Duration silence, Ref<Worker> worker, MeshEvents events);
  ~MeshClient() override;

  void start();  // once, on the strand
  void on(FromWorker m) override;

 private:
  void dial();
  void on_dialled(Result<std::unique_ptr<Link>> link);
  void on_frame(const Bytes& frame);
  void sweep();
  void sweep_later();
  void lose(Status why);
  void drop_link();
  void dial_later();

  std::shared_ptr<Strand> strand_;
  Network& network_;
  Random& random_;
  Endpoint coordinator_;
  Duration silence_;
  Ref<Worker> worker_;
  MeshEvents events_;

  std::unique_ptr<Link> link_;
  uint64_t connection_ = 0;  // callbacks of older ones are ignored
  Incarnation incarnation_;
  bool welcomed_ = false;
  Instant heard_{};
  Instant sweep_due_{};
  bool put_off_ = false;  // the sweep that is due, once
  Duration backoff_ = kBackoffMin;
  Timer timer_;  // next dial, or next sweep
};

}  // namespace headrace::worker
