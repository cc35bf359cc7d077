#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/client_port.h"
#include "coordinator/cluster_status.h"
#include "coordinator/mesh_port.h"
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
  Endpoint metrics{};                     // of this process, for status; port 0: none
  std::shared_ptr<Probes> probes{};       // none: nobody looks
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

// Holds requests until a worker has room, gives each to one pair of workers or to one worker, and
// is the only one who knows what was generated: its token logs are the truth. A failed attempt is
// replayed elsewhere from the log. Each Submit ends in exactly one Ended.
//
// An actor: lives on one strand, is destroyed on it. Sources: dispatcher.cc (clients),
// dispatcher_attempts.cc (placing, the hand-off protocol, tokens), dispatcher_workers.cc (who
// lives, the tokenizer, sweeps).
class Dispatcher final : public WorkerEvents {
 public:
  Dispatcher(std::shared_ptr<Strand> strand, Random& random, Ref<MeshPort> mesh,
             TextModelFactory make_text, DispatcherOptions options);

  // From clients.
  void on(Submit submit);
  void on(Acknowledge ack);
  void on(Abandon abandon);
  void on(AskStatus ask);
  void on(AskTokenize ask);
  void on(AskDetokenize ask);

  // From the mesh door.
  void on(WorkerJoined joined) override;
  void on(FromWorker message) override;
  void on(WorkerLost lost) override;

  void on(BeginSweeps begin);

  // For tests; on the strand.
  const std::map<RequestId, std::unique_ptr<RequestRecord>>& requests() const { return requests_; }

 private:
  using Record = RequestRecord;
  using Queue = std::list<Record*>;

  // An attempt that was cancelled; kept until all who had it said Quiesced.
  struct Closing {
    Attempt attempt{};
    std::vector<WorkerId> open;
    Instant since{};
  };

  // Clients.
  Status check_submit(const Submit& submit) const;
  Status tokenize(Record& record);
  void deliver(Record& record);  // may destroy the record
  // The terminal step: no attempt lives after it. May destroy the record.
  void finish(Record& record, Finish how, Status status);
  void erase(Record& record);

  // Attempts.
  void place();
  std::vector<WorkerView> views(Instant now) const;
  std::optional<Route> choose(const Record& record, Instant now) const;
  // Ok, or why no worker of this cluster could ever take it. An answer without a length of its own
  // gets one: to the end of the context, or of what the largest worker holds.
  Status fit(Record& record) const;
  void dispatch(Record& record, const Route& route, Instant now);
  void send_prepare(Record& record);
  void requeue(Record& record, Instant not_before);
  void enter(Record& record, Phase phase);
  void book(Record& record);
  void release(WorkerId id, Workload& share);
  void prefill_over(Record& record);
  // Cancels on both sides; the record has no attempt after it.
  void close_attempt(Record& record, const Status& why);
  // Tries elsewhere, or ends the request. `culprits` are avoided from now on.
  void attempt_failed(Record& record, const std::vector<WorkerId>& culprits, Status why);
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
  void take_run(WorkerId from, to_coordinator::TokenRun& run);
  Status check_run(const Record& record, const to_coordinator::TokenRun& run) const;
  void run_finished(Record& record, const to_coordinator::TokenRun& run);

  // Workers.
  void lose(WorkerId id, const Status& why);
  void serve_model(const ModelCard& card);
  std::string title(WorkerId id) const;  // "worker decode-0"
  void fetch_tokenizer();
  void drop_fetch(const Status& why);
  void sweep();
  void sweep_workers(Instant now);
  void sweep_request(Record& record, Instant now);
  // What has run out in the record's attempt, if anything; `culprits` gets who is to blame.
  Status overdue(const Record& record, Instant now, std::vector<WorkerId>& culprits);
  Status queue_overdue(const Record& record, Instant now) const;
  void ping(Instant now);
  bool stuck(WorkerId id, Instant since, Instant now) const;
  std::string not_ready() const;

  std::shared_ptr<Strand> strand_;
  Random& random_;
  Ref<MeshPort> mesh_;
  TextModelFactory make_text_;
  DispatcherOptions options_;

  Registry registry_;
  std::optional<ModelCard> served_;  // the last card there was
  bool had_decoder_ = false;
  Instant decoders_gone_{};  // when the last worker that could decode was lost

  std::shared_ptr<const TextModel> text_;  // of the cluster's model; null until fetched
  Digest text_digest_;
  std::optional<TokenizerFetch> fetch_;
  WorkerId fetch_last_{};  // asked last
  Instant fetch_not_before_{};
  Status fetch_trouble_;  // of the last fetch that failed: another worker is asked
  Status text_error_;     // the tokenizer came whole and cannot be used: final

  std::map<RequestId, std::unique_ptr<Record>> requests_;
  Queue queue_;                             // at most kQueueMax and those that were placed before
  std::map<TransferId, Record*> attempts_;  // current ones
  std::map<TransferId, Closing> closing_;   // at most kClosingMax

  Totals totals_;
  bool placing_ = false;
  Instant next_ping_{};
  Instant sweep_due_{};
  bool put_off_ = false;  // the sweep that is due, once
  Timer sweep_timer_;
};

}  // namespace headrace::coordinator
