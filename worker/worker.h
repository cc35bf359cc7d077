#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/actor.h"
#include "protocol/link.h"
#include "protocol/messages.h"
#include "protocol/random.h"
#include "protocol/slowdown.h"
#include "worker/block_pool.h"
#include "worker/block_stage.h"
#include "worker/correction.h"
#include "worker/engine.h"
#include "worker/handoff_receiver.h"
#include "worker/options.h"
#include "worker/prefix_cache.h"
#include "worker/quarantine.h"
#include "worker/saturation_meter.h"
#include "worker/sequence.h"
#include "worker/step.h"

namespace headrace::worker {

// --- words between the worker and its link to the coordinator (mesh_client.h) ---

struct LinkUp {  // connected: register under this fresh incarnation
  Incarnation incarnation;
};
struct LinkDown {};  // all that the coordinator asked for is over
struct FromWorker {  // to be sent, unless the link is by now that of another incarnation
  Incarnation incarnation;
  ToCoordinator message;
};
// Takes no new work; `done` is called on the worker's strand when its last sequence has ended or
// `grace` is over. Asked again, the shorter grace holds.
struct Drain {
  Duration grace{};
  std::function<void()> done;
};
class Uplink {
 public:
  virtual ~Uplink() = default;
  virtual void on(FromWorker message) = 0;
};

// What a worker has counted since its start.
struct WorkerCounters {
  uint64_t steps = 0;
  uint64_t followed = 0;   // of them prepared while the one before ran
  uint64_t tokens = 0;     // sampled
  uint64_t prefilled = 0;  // prompt tokens computed
  uint64_t preempted = 0;
  uint64_t refused = 0;
  uint64_t stale = 0;   // messages of an older term, incarnation or attempt
  uint64_t failed = 0;  // attempts
  uint64_t owned = 0;   // hand-offs received
};

// The actor of one device: admits, plans, steps, hands over, adopts, releases. README.md tells who
// owns what and which transitions exist.
//
// Everything it holds for a request belongs to one registration with the coordinator: when the link
// is lost, all of it is freed at once (blocks of a step in flight at its end) and the next
// registration begins under a new incarnation, with nothing but the prefix cache. One engine step
// is in flight at a time, and one may be prepared that begins when it ends; their blocks stay held
// until they are done, whatever happens meanwhile.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  static constexpr Duration kSweepEvery = 100ms;
  static constexpr Duration kFinishedKept = 60s;
  static constexpr size_t kFinishedMax = 4096;
  static constexpr size_t kTokenizerPieceMax = size_t{1} << 20;
  // A step may take this long, or kStepFactor times what was predicted for it, within step_max.
  static constexpr Duration kStepPatience = 5s * kSlowdown;
  static constexpr int kStepFactor = 8;
  // From the end of the grace of a drain, when all is ended, until nobody waits for steps any more.
  static constexpr Duration kDrainLast = 1s;
  // Sweeps after the end of a sequence, 5 s of a life without pauses: then who still writes its
  // blocks counts as not to be stopped.
  static constexpr uint32_t kStopSweeps = 50;

  // `tokenizer`: the encoded TokenizerData whose digest the engine's card names.
  Worker(std::shared_ptr<Strand> strand, Network& network, Random& random, Engine& engine,
         WorkerOptions options, std::shared_ptr<const Bytes> tokenizer);
  ~Worker();

  // Opens the KV channel and begins to sweep. Once, on the strand. kUnavailable: port in use.
  Status start(Ref<Uplink> uplink);

  void on(const LinkUp& m);
  void on(const LinkDown& m);
  void on(const to_worker::Welcome& m);
  void on(const to_worker::Ping& m);
  void on(const to_worker::FetchTokenizer& m);
  void on(to_worker::Prepare m);
  void on(to_worker::Start m);
  void on(const to_worker::Cancel& m);
  void on(Drain m);

  struct StepFinished {
    uint64_t step = 0;
    StepDone done;
  };
  void on(StepFinished m);

  // For status and tests; on the strand.
  BlockCounts blocks() const { return pool_.counts(); }
  const WorkerCounters& counters() const { return counters_; }
  size_t sequences() const { return sequences_.size(); }
  size_t cached_blocks() const { return cache_.blocks(); }
  bool draining() const { return drain_.has_value(); }
  const std::map<uint64_t, Sequence>& held() const { return sequences_; }
  const BlockPool& pool() const { return pool_; }
  Endpoint kv_endpoint() const;

 private:
  using Key = uint64_t;  // of a sequence; in order of arrival, never used twice

  struct StepPart {
    Key key = 0;
    uint32_t tokens = 0;
    bool sample = false;
  };
  struct InFlight {
    uint64_t id = 0;
    Instant since{};
    std::vector<StepPart> parts;
    StepShape shape;
    Duration limit{};
    bool overdue = false;
  };
  // What the step in flight does for a sequence that a prepared step carries, too.
  struct Ahead {
    uint32_t tokens = 0;              // computed
    std::optional<uint32_t> follows;  // its index there, if it samples
  };
  struct Lookahead {
    PlanInput input;  // as it will be when the step in flight has ended
    std::vector<Key> running;
    std::vector<Ahead> ahead;  // of those
  };
  struct Draining {
    Instant until{};
    bool ended = false;  // what ran at `until` was ended
    std::vector<std::function<void()>> done;
  };
  struct Finished {
    Attempt attempt{};
    Instant when{};
    ToCoordinator last;
  };

  // worker.cc: life
  void sweep();
  void check_deadlines(Instant now);
  void beat();
  to_coordinator::Beat make_beat();
  void tell(ToCoordinator message);
  bool registered() const { return term_.has_value(); }
  bool paused() const;
  void fail(Key key, Status why);
  void run_out(Key key);
  void release(Key key, bool quiesce);
  void end_handoff(Key key, Sequence& s, bool reads_on);
  void copies_over(Key key);
  void copies_over(TransferId transfer);
  void check_copies();
  Status open_kv_channel();
  BlockMemory block_memory();
  void remember(const Sequence& s, ToCoordinator last);
  Key add(Sequence s);
  Sequence* find(TransferId transfer);
  Sequence make_sequence(to_worker::Prepare m) const;
  Sequence make_sequence(to_worker::Start m) const;

  // worker_requests.cc: what the coordinator asks
  bool stale(Term term) const { return term_ != term; }
  void refuse(TransferId transfer, Attempt attempt, Status why);
  bool answer_repeat(TransferId transfer, Attempt attempt);
  bool ending(TransferId transfer) const;  // and will say Quiesced
  Status check(const to_worker::Prepare& m) const;
  Status check(const to_worker::Start& m) const;
  Status check_tokens(const std::vector<Token>& tokens) const;
  Status room_for_grant(Sequence& s);
  Status takes_work() const;
  void grant(Sequence s);
  void send_grant(const Sequence& s);
  void own_at_once(Sequence s);
  void received(TransferId transfer, Status status);
  uint32_t count(Stage stage) const;

  // worker_steps.cc: plan, run, apply
  void schedule();
  void try_step();
  PlanInput plan_input(std::vector<Key>& running, std::vector<Key>& waiting);
  PlanSequence plan_sequence(const Sequence& s) const;
  void preempt(Sequence& s);
  void admit(Key key);
  Duration step_limit(const StepShape& shape) const;
  void add_part(Step& step, InFlight& flight, Key key, const PlanPart& part, const Ahead& ahead);
  std::function<void(StepDone)> teller(uint64_t step);
  void open_sender(Key key, Sequence& s);
  void apply(const StepPart& part, StepDone& done, size_t index, to_coordinator::Tokens& out);
  void sampled(Sequence& s, Key key, Token token, Logprobs logprobs, to_coordinator::Tokens& out);
  StepReport describe(const InFlight& flight, const StepDone& done);
  void prefilled(Sequence& s);
  void sent(Key key, Status status);
  Digest kv_digest(const Sequence& s);
  uint32_t promise(const Sequence& s) const;

  // worker_prepare.cc: the step after the one in flight
  void prepare_step();
  std::optional<Lookahead> look_ahead();
  bool predictable(const Sequence& s, const Ahead& ahead) const;
  bool ends(const Sequence& s, const Ahead& ahead) const;
  void withdraw();
  void drop(const InFlight& prepared);
  void settle_prepared(bool followed);

  // worker_cache.cc: what sequences take from the prefix cache and leave there
  uint32_t shared_blocks(const Sequence& s) const;
  void match_hits(Sequence& s);
  void acquire_hits(Sequence& s);
  void leave_in_cache(Sequence& s);
  uint32_t free_blocks(Sequence& s);
  void quarantine(Sequence& s);

  // worker_drain.cc: its end, and how it stands
  void check_drain(Instant now);
  Status health(Instant now) const;
  void report_gauges(Instant now);
  void report_received(Sequence& s, const Status& status);
  void report_sent(Sequence& s, const Status& status);
  // Its hand-off, if one is under way, ends here with it.
  void report_broken(Sequence& s, const Status& why);
  WorkerGauges gauges() const;

  std::shared_ptr<Strand> strand_;
  Network& network_;
  Random& random_;
  Engine& engine_;
  WorkerOptions options_;
  std::shared_ptr<const Bytes> tokenizer_;
  Digest layout_;
  BlockPool pool_;
  PrefixCache cache_;
  Quarantine quarantine_;
  std::unique_ptr<BlockStage> stage_;  // where the host cannot use the blocks as its own memory
  std::shared_ptr<LaneSource> lanes_;  // or none: hand-offs go over tcp
  CorrectionLearner learner_;
  SaturationMeter meter_;
  std::shared_ptr<Probes> probes_;  // never null
  WorkerCounters counters_;

  Ref<Uplink> uplink_;
  Incarnation incarnation_;
  std::optional<Term> term_;  // none: not registered
  Duration beat_every_{};
  Instant beat_due_{};
  Instant coordinator_heard_{};
  uint64_t ping_seen_ = 0;  // of this registration

  Key next_key_ = 1;
  std::map<Key, Sequence> sequences_;
  std::map<TransferId, Key> by_transfer_;
  std::map<TransferId, Finished> finished_;

  uint64_t step_id_ = 0;
  std::optional<InFlight> step_;
  std::optional<InFlight> prepared_;   // only beside step_
  std::optional<Instant> step_ended_;  // the last one, and there was more to do
  double gap_ = 0;  // seconds between steps not yet reported; below 0: too many were
  bool scheduled_ = false;
  bool kv_short_ = false;     // as of the last plan
  bool grant_short_ = false;  // since the last sweep a grant found no blocks
  std::optional<Draining> drain_;

  Timer sweep_timer_;
  Instant sweep_due_{};
  Instant swept_{};
  Duration loop_lag_{};
  std::unique_ptr<HandoffReceiver> receiver_;  // last: its end calls nothing here
};

}  // namespace headrace::worker
