#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/client_port.h"
#include "protocol/actor.h"
#include "protocol/messages.h"

namespace headrace::coordinator {

struct WorkerStatus {
  WorkerId id{};
  std::string name;
  Role role{};
  // "ready"; "draining": takes no more; "stalled": work without progress; "suspect": its last beat
  // held numbers that cannot be
  std::string state;
  uint64_t pid = 0;
  std::string device;
  Endpoint kv;
  Endpoint metrics;
  BlockCounts blocks;
  uint32_t in_flight = 0;  // pieces of work given to it
  uint32_t running = 0;    // sequences in its batch, as of its last beat
  uint64_t steps = 0;
  Saturation prefill, decode;  // of its last seconds
};

// Since the start of the coordinator.
struct Totals {
  uint64_t submitted = 0;
  uint64_t refused = 0;  // ended before a worker had them
  uint64_t stopped = 0;  // ended: finish stop or length
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t tokens = 0;  // appended to logs
  uint64_t attempts = 0;
  uint64_t attempts_failed = 0;
  uint64_t refusals = 0;         // of workers
  uint64_t remote_prefills = 0;  // hand-offs that were owned
  uint64_t workers_lost = 0;     // those that drained and left are none
  uint64_t stale = 0;      // messages of old attempts or in a wrong state: dropped
  uint64_t repeats = 0;    // token runs that were here already: dropped
  uint64_t gaps = 0;       // token runs that left something out: attempt failed
  uint64_t conflicts = 0;  // another token at a logged position: attempt failed
  uint64_t resumed = 0;
  uint64_t stop_matched = 0;  // ended by a stop text
  uint64_t told_again = 0;    // Prepare, Start or Cancel that a worker seems to have missed
  uint64_t closing_lost = 0;  // cancelled attempts given up without Quiesced
  uint64_t prefix_gaps = 0;   // beats whose prefix events do not follow those taken
  uint64_t poisoned = 0;      // requests that workers died of
};

struct ClusterStatus {
  bool ready = false;     // a request can be answered now
  std::string not_ready;  // why not
  std::optional<ModelCard> model;
  bool chat = false;  // the model has a chat template
  std::vector<WorkerStatus> workers;
  uint32_t running = 0;   // requests that a worker has
  uint32_t waiting = 0;   // in the queue
  uint32_t draining = 0;  // over, the client has not taken all
  bool leaving = false;   // the coordinator drains: it takes no new request
  Endpoint metrics;       // of the coordinator; port 0: none
  Totals totals;
};

// To the Dispatcher.
struct AskStatus {
  Ref<ReplyPort<ClusterStatus>> reply;
};

}  // namespace headrace::coordinator
