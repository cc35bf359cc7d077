#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/admission_queue.h"
#include "coordinator/client_port.h"
#include "coordinator/cluster_status.h"
#include "coordinator/event_log.h"
#include "coordinator/link_rates.h"
#include "coordinator/mesh_port.h"
#include "coordinator/pair_health.h"
#include "coordinator/poison_list.h"
#include "coordinator/prefix_index.h"
#include "coordinator/probes.h"
#include "coordinator/registry.h"
#include "coordinator/request_record.h"
#include "coordinator/router.h"
#include "coordinator/text_model.h"
#include "coordinator/tokenizer_fetch.h"
#include "protocol/random.h"

namespace headrace::coordinator {

struct DispatcherOptions {
  Term term{1};
  PdMode pd = PdMode::kAuto;
  Endpoint metrics{};                // of this process, for status; port 0: none
  std::shared_ptr<Probes> probes{};  // none: nobody looks
  std::shared_ptr<EventLog> log{};   // none: nobody reads
  // Before the first route there is: whether requests wait for it in the queue, as where one
  // process starts everything, or are refused, as where workers may come much later.
  bool waits_for_first = true;
  std::shared_ptr<Strand> text_strand{};  // where text becomes tokens; none: the Dispatcher's own
};

// Begins the sweeps; the first message it gets.
struct BeginSweeps {};

// Take no new request; those that are here go on for `grace`, then end with kUnavailable, nothing
// silently. Asked again, the shorter grace holds. The answer comes when none is left.
struct BeginDrain {
  Duration grace{};
  Ref<ReplyPort<bool>> reply;  // true: all ended by themselves
};

// From the strand of text: a prompt became tokens, or will not.
struct TextEncoded {
  RequestId request;
  uint64_t ticket = 0;  // of the job
  size_t bytes = 0;     // of the prompt
  std::shared_ptr<const TextModel> model;
  std::optional<Result<std::vector<Token>>> ids;  // none: it was not wanted any more
  std::vector<uint64_t> chain;                    // names of its full blocks (prefix_hash.h)
};
// The same for a question that is not a request's.
struct TextAnswered {
  size_t bytes = 0;
};

// Holds requests until a worker has room, gives each to one pair of workers or to one worker, and
// is the only one who knows what was generated: its token logs are the truth. A failed attempt is
// replayed elsewhere from the log. Each Submit ends in exactly one Ended; if it is resumable, each
// Resume as well.
//
// An actor: lives on one strand, is destroyed on it; held by a shared_ptr. Sources: dispatcher.cc
// (clients), dispatcher_resume.cc (who left and comes back, draining), dispatcher_text.cc
// (tokenizing), dispatcher_attempts.cc (placing, failing, replay), dispatcher_protocol.cc (what
// workers answer), dispatcher_tokens.cc (what they generate), dispatcher_workers.cc (who lives, the
// tokenizer), dispatcher_sweep.cc (deadlines, lost messages), dispatcher_status.cc.
class Dispatcher final : public WorkerEvents, public std::enable_shared_from_this<Dispatcher> {
 public:
  Dispatcher(std::shared_ptr<Strand> strand, Random& random, Ref<MeshPort> mesh,
             TextModelFactory make_text, DispatcherOptions options);

  // From clients.
  void on(Submit submit);
  void on(Acknowledge ack);
  void on(Abandon abandon);
  void on(Detach detach);
  void on(Resume resume);
  void on(AskCancel ask);
  void on(AskStatus ask);
  void on(AskTokenize ask);
  void on(AskDetokenize ask);

  // From the mesh door.
  void on(WorkerJoined joined) override;
  void on(FromWorker message) override;
  void on(WorkerLost lost) override;

  // From the process.
  void on(BeginSweeps begin);
  void on(BeginDrain drain);

  // From the strand of text.
  void on(TextEncoded encoded);
  void on(TextAnswered answered);

  // For tests; on the strand.
  const std::map<RequestId, std::unique_ptr<RequestRecord>>& requests() const { return requests_; }

 private:
  using Record = RequestRecord;
  using Queue = std::list<Record*>;

  // What came of a line of the queue.
  enum class Turn : uint8_t {
    kPlaced,   // one was given to a worker
    kNobody,   // none wants a worker now
    kNoRoom,   // the first one waits for room
    kNoShare,  // ... for that of strangers only
  };

  // An attempt that was cancelled; kept until all who had it said Quiesced.
  struct Closing {
    Attempt attempt{};
    std::vector<WorkerId> open;
    Instant told{};
    Instant begun{};
  };

  // Clients.
  Status check_submit(const Submit& submit) const;
  // Nobody could answer, and that is not just for a moment.
  Status no_route() const;
  // ... to a new request: those who could only end what they have.
  Status all_drain() const;
  void deliver(Record& record);  // may destroy the record
  // The terminal step: no attempt lives after it. May destroy the record.
  void finish(Record& record, Finish how, Status status);
  void write_end(Record& record, Finish how, const Status& status);
  // Its client is told so at once, whatever it has not fetched.
  void break_off(Record& record, Finish how, Status status);
  // Nothing is left to be told now: kept if it is resumable, else gone.
  void retire(Record& record);
  void unretain(Record& record);
  void erase(Record& record);
  void unpark(Record& record);
  static uint32_t behind(const Record& record) {
    return record.log.size() - record.log.acknowledged();
  }
  uint32_t behind_max(const Record& record) const;
  void heard(Record& record);  // its client took something, or it is over
  void know(Record& record);   // its client took something
  bool known_active() const;   // clients who are known are served, or were a moment ago
  void wait_in_line(Record& record, bool first);

  // Draining.
  bool draining() const { return drain_until_.has_value(); }
  void sweep_drain(Instant now);

  // Text.
  const std::shared_ptr<Strand>& text_strand() const;
  void encode(Record& record);
  void encode_waiting();
  void drop_encoding(Record& record);  // its prompt is not wanted any more
  Status tokenized(Record& record, std::vector<Token> ids);
  Status text_room(size_t bytes) const;

  // Attempts.
  void place();
  Turn place_from(Rank rank, Instant now);
  std::vector<WorkerView> views(const Record& record, Instant now) const;
  // `shared`: a stranger's, within what those share.
  std::optional<Route> choose(const Record& record, Instant now, bool suspect, bool shared) const;
  // Ok, or why no worker of this cluster could ever take it. An answer without a length of its own
  // gets one: to the end of the context, or of what the largest worker holds.
  Status fit(Record& record) const;
  void dispatch(Record& record, const Route& route, Instant now);
  void send_prepare(Record& record);
  void send_start(Record& record);
  void requeue(Record& record, Instant not_before);
  void enter(Record& record, Phase phase);
  void book(Record& record, uint64_t cached);
  void release(WorkerId id, Workload& share);
  void prefill_over(Record& record);
  void proven(Record& record);  // it made a token: no worker dies of it
  // Its blocks at the decode worker are that worker's own affair from now on.
  void forget_grant(Record& record);
  // Cancels on both sides; the record has no attempt after it.
  void close_attempt(Record& record, const Status& why);
  // Whether the time that the client gave it is over before its end. What fails then is nobody's
  // fault, and nothing is tried anew.
  bool ran_out(const Record& record) const;
  void run_out(Record& record);
  // Tries elsewhere, or ends the request. `culprits` are avoided from now on. `excused`: it does
  // not count against the request.
  void attempt_failed(Record& record, const std::vector<WorkerId>& culprits, Status why,
                      bool excused = false);
  void tell_worker(WorkerId id, ToWorker message);
  std::vector<WorkerId> sides(const AttemptRecord& attempt) const;

  // The record whose current attempt this is, if `from` takes part in it; else null, counted.
  Record* current(WorkerId from, const TransferId& transfer, Attempt attempt);
  void handle(WorkerId from, to_coordinator::Register m);
  void handle(WorkerId from, to_coordinator::Beat m);
  void handle(WorkerId from, to_coordinator::TokenizerPiece m);
  void handle(WorkerId from, to_coordinator::Grant m);
  void handle(WorkerId from, to_coordinator::Refuse m);
  void handle(WorkerId from, to_coordinator::PrefillDone m);
  void handle(WorkerId from, to_coordinator::Owned m);
  void handle(WorkerId from, to_coordinator::AttemptFailed m);
  void handle(WorkerId from, to_coordinator::Tokens m);
  void handle(WorkerId from, to_coordinator::Quiesced m);
  Status check_grant(const Record& record, const GrantedBlocks& granted);
  void take_run(WorkerId from, to_coordinator::TokenRun& run);
  Status check_run(const Record& record, const to_coordinator::TokenRun& run) const;
  Status append(WorkerId from, Record& record, to_coordinator::TokenRun& run);
  void grown(WorkerId from, Record& record, const to_coordinator::TokenRun& run, uint32_t before);
  void run_finished(Record& record, const to_coordinator::TokenRun& run);
  // It sent what cannot be: others are preferred for a while.
  void distrust(WorkerId id);

  // Workers.
  // `died`: its process ended; else it fell silent, left, or was put out.
  void lose(WorkerId id, const Status& why, bool died);
  // One of its workers died. True: the request is taken for the cause.
  bool blame(Record& record, Instant now);
  void serve_model(const ModelCard& card);
  std::string title(WorkerId id) const;  // "worker decode-0"
  // A process that may have died and not been missed yet gives its name to the next one. False: it
  // was heard too lately to tell, the next one has to come again.
  bool free_name(const to_coordinator::Register& hello);
  std::string gone() const;  // why no worker that decodes is left
  void note(Event event, std::string line) {
    events_.write(event, strand_->now(), std::move(line));
  }
  void note_failed(const Record& record, const std::vector<WorkerId>& culprits, const Status& why);
  void note_ready();
  void show(const ClusterStatus& status);
  void fetch_tokenizer();
  void drop_fetch(const Status& why);

  // Sweeps.
  void sweep();
  void sweep_workers(Instant now);
  void sweep_requests(Instant now);
  void sweep_request(Record& record, Instant now);
  void sweep_idle(Record& record, Instant now);  // without an attempt
  void sweep_closing(Instant now);
  // Attempts that this beat should name and does not.
  void check_held(WorkerId from, const to_coordinator::Beat& beat);
  void tell_again(Record& record, WorkerId worker);
  // What has run out in the record's attempt, if anything; `culprits` gets who is to blame.
  Status overdue(Record& record, Instant now, std::vector<WorkerId>& culprits);
  Status starved(Record& record, Instant now, std::vector<WorkerId>& culprits);
  Status queue_overdue(const Record& record, Instant now) const;
  void ping(Instant now);
  bool stuck(WorkerId id, Instant since, Instant now) const;

  // Status.
  std::string not_ready() const;
  ClusterStatus make_status() const;
  Probes& probes() const { return *options_.probes; }

  std::shared_ptr<Strand> strand_;
  Random& random_;
  Ref<MeshPort> mesh_;
  TextModelFactory make_text_;
  DispatcherOptions options_;
  CacheKey cache_key_;
  bool watched_ = false;  // someone gave probes

  Registry registry_;
  PrefixIndex prefix_;
  PairHealth pairs_;
  LinkRates links_;
  PoisonList poison_;
  std::optional<ModelCard> served_;  // the last card there was
  bool had_route_ = false;           // a request could be answered, once
  Instant decoders_gone_{};          // when the last worker that could decode was lost
  std::string decoders_gone_why_;    // what became of it
  Instant decoders_closed_{};        // when the last of them that took requests was gone

  std::shared_ptr<const TextModel> text_;  // of the cluster's model; null until fetched
  Digest text_digest_;
  std::optional<TokenizerFetch> fetch_;
  WorkerId fetch_last_{};  // asked last
  Instant fetch_not_before_{};
  Status fetch_trouble_;     // of the last fetch that failed: another worker is asked
  Status text_error_;        // the tokenizer came whole and cannot be used: final
  size_t text_waiting_ = 0;  // bytes that are not tokens yet: at most kTextWaitingBytesMax
  uint64_t next_ticket_ = 1;

  std::map<RequestId, std::unique_ptr<Record>> requests_;
  AdmissionQueue queue_;                    // and those that were placed before
  uint32_t unheard_ = 0;                    // records whose `unheard` is set
  uint32_t known_open_ = 0;                 // records not ended, of connections that are known
  std::optional<Instant> known_last_;       // when the last one of those ended
  Queue retained_;                          // at most kRetainedMax, the oldest first
  size_t retained_bytes_ = 0;               // at most kRetainedBytesMax
  std::map<TransferId, Record*> attempts_;  // current ones
  std::map<TransferId, Closing> closing_;   // at most kClosingMax

  WorkerId lost_{};  // last, and what it is called in what follows from it
  std::string lost_title_;
  EventWriter events_;
  std::optional<std::string> noted_ready_;  // why the cluster is not ready, as noted last

  std::optional<Instant> drain_until_;
  bool drain_cut_ = false;  // something was ended by the drain
  std::vector<Ref<ReplyPort<bool>>> drain_replies_;

  Totals totals_;
  bool placing_ = false;
  Instant next_ping_{};
  Instant sweep_due_{};
  bool put_off_ = false;  // the sweep that is due, once
  Timer sweep_timer_;
};

}  // namespace headrace::coordinator
