#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/strand.h"
#include "worker/nccl_driver.h"
#include "worker/nccl_lane.h"
#include "worker/nccl_notes.h"
#include "worker/nccl_turn.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

struct NcclOptions {
  bool trust_links = false;  // to other hosts, too: NCCL is plain text and lets anybody in
  uint64_t host = 0;         // this machine
  uint64_t device = 0;       // random; this source
  uint32_t slot_bytes = 8u << 20;
  uint32_t pairs_max = 16;       // communicators at a time, those being ended included
  uint32_t unused_ids_max = 64;  // each costs a thread and a socket until the process ends
  Duration ready = 6s;           // until both ends can begin; longer than an abort
  Duration open = 10s;           // of a communicator, from the id on
  Duration progress = 1s;        // from one slot to the next
  Duration go = 3s;              // of an offer
  Duration abort = 5s;           // then its memory is lost, and the process is sick
  Duration idle = 60s;           // without a lane: the communicator is ended
  Duration shun = 30s;           // a peer with which a communicator broke: tcp
};

// One communicator of two, or what is to become one.
struct NcclPair {
  enum class State : uint8_t {
    kSeat,     // others have to end first
    kReady,    // P: has said Join and waits for Ready; D: has said Ready and waits for the id
    kMinting,  // P
    kOpening,
    kOpen,
    kAborting,
    kLost,  // could not be aborted
  };
  CommNo comm{};
  uint64_t device = 0;  // the peer's
  LaneEnd end{};        // ours
  Incarnation peer;     // of the newest lane
  uint32_t epoch = 0;
  State state = State::kSeat;
  std::optional<NcclId> id;  // P
  std::vector<NcclLane*> lanes;
  Instant since{};  // made, later: in this state
  Instant used{};
  bool told = false;  // the peer has aborted it
  bool begun() const { return state == State::kOpening || state == State::kOpen; }
};

constexpr uint32_t kNcclLeakedMax = 16;

// The communicators of one device, one for each pair of a prefill and a decode worker, made when
// first used, and the lanes over them (notes: nccl_notes.h; order: nccl_turn.h). An id is minted
// only when the peer has said that it is ready. Every wait has a deadline; what runs into one is
// aborted at both ends, and its peer gets tcp for a while. A communicator ends by being aborted
// even when it is idle: finalize would wait for the peer. What cannot be aborted, or not in time,
// is lost, with the slots that it uses; then health() says that the process has to be started
// again. An abort that fails where nothing was under way costs the communicator alone, up to
// kNcclLeakedMax of them.
class NcclPairs : public LaneSource {
 public:
  NcclPairs(std::shared_ptr<Strand> strand, NcclDriver& driver, const NcclOptions& options);
  ~NcclPairs() override;
  NcclPairs(const NcclPairs&) = delete;

  LaneTerms offer(Incarnation peer, std::string* why = nullptr) override;
  LaneTerms answer(Incarnation peer, const LaneTerms& offered, std::string* why = nullptr) override;
  Status agree(const LaneTerms& offered, const LaneTerms& answered) override;
  std::unique_ptr<PayloadLane> lane(LaneEnd end, Incarnation peer, const LaneTerms& terms,
                                    PayloadLane::Host host) override;
  void sweep() override;
  Status health() const override;

  uint32_t unused_ids() const { return unused_; }
  size_t pairs() const { return pairs_.size(); }  // those being ended included
  uint64_t broken() const { return broken_; }     // so far

  // --- for NcclLane and NcclTurn ---
  const NcclOptions& options() const { return options_; }
  Strand& strand() { return *strand_; }
  Status heard(NcclLane& lane, const NcclNote& note);
  void posted(NcclLane& lane);
  void close(NcclLane& lane, LaneEnding why);
  void quiet(NcclLane& lane);   // nothing of it is under way any more
  void forget(NcclLane& lane);  // it is being destroyed

 private:
  using State = NcclPair::State;

  static Status not_here();
  Status on(NcclLane& lane, const nccl_note::Join& note);
  Status on(NcclLane& lane, const nccl_note::Ready& note);
  Status on(NcclLane& lane, const nccl_note::Have& note);
  Status on(NcclLane& lane, const nccl_note::Id& note);
  Status on(NcclLane& lane, const nccl_note::Credit& note);
  Status on(NcclLane& lane, const nccl_note::Offer& note);
  Status on(NcclLane& lane, const nccl_note::Go& note);
  Status on(NcclLane& lane, const nccl_note::Broken& note);
  Status on(NcclLane& lane, const nccl_note::Bye& note);

  NcclPair* current(uint64_t device, LaneEnd end);  // not one that ends
  NcclPair* find(CommNo comm);
  NcclPair& make(NcclLane& lane, uint32_t epoch);
  void attach(NcclLane& lane, NcclPair& pair);
  void detach(NcclLane& lane);
  void seat();  // those that wait, as far as there is room
  bool follows_one_that_ends(const NcclPair& pair) const;
  void greet(NcclLane& lane);
  void mint(NcclPair& pair);
  void minted(NcclPair& pair, const NcclId& id);
  void open(NcclPair& pair, const NcclId& id);
  void on_open(CommNo comm, Status status);
  // Fails its lanes (with `renew`, those that have begun: the others wait for, or join, the next)
  // and aborts it.
  void end(NcclPair& pair, const Status& why, bool renew = false);
  void abort(NcclPair& pair);
  void on_aborted(CommNo comm, const Status& status = {});
  void lose(NcclPair& pair, const std::string& why);
  void shun(Incarnation peer, const std::string& why);
  void sweep(NcclPair& pair);
  // Why no lane can be had at all, or with this peer.
  std::string hindrance(Incarnation peer);

  std::shared_ptr<Strand> strand_;
  NcclDriver& driver_;
  const NcclOptions options_;
  std::shared_ptr<NcclPairs*> self_;  // the driver's callbacks hold it weakly
  NcclTurn turn_;
  std::map<CommNo, std::unique_ptr<NcclPair>> pairs_;
  std::vector<NcclLane*> lanes_;
  struct Shunned {
    Instant until{};
    std::string why;
  };
  std::map<Incarnation, Shunned> shunned_;
  uint32_t next_comm_ = 1;
  uint32_t next_epoch_ = 1;
  uint32_t minting_ = 0;       // ids that the library was asked for, one after another
  Instant minting_since_{};    // the one that it makes now
  uint32_t unused_ = 0;        // minted and not used, those at hand included
  std::vector<NcclId> spare_;  // that nobody has heard of
  uint64_t broken_ = 0;
  uint32_t leaked_ = 0;  // communicators whose abort failed
  Status health_;
};

}  // namespace headrace::worker
