#pragma once

#include <cstdint>
#include <string_view>

#include "coordinator/client_port.h"
#include "coordinator/cluster_status.h"

namespace headrace::coordinator {

// Eyes on the Dispatcher, told on its strand; it never waits for them. Bodies: PrometheusProbes.
// The default does nothing.
class Probes {
 public:
  virtual ~Probes() = default;
  // The one end of a request. `dispatched`: a worker had it; else it was refused or gave up before.
  virtual void ended(const Ended&, bool /*dispatched*/) {}
  virtual void first_token(double /*seconds since admission*/) {}
  // `tokens` came together, `seconds` after those before.
  virtual void tokens(uint32_t /*tokens*/, double /*seconds*/) {}
  virtual void stage(std::string_view /*tokenize, queue, prefill, decode*/, double /*seconds*/) {}
  // The connection of an unfinished request is gone; its phase: queue, prefill, decode.
  virtual void client_gone(std::string_view /*phase*/) {}
  virtual void attempt_failed(Errc /*why*/) {}
  // It is in no later status. `how`: "drained" (as asked), "disconnected" (it died, or its link
  // broke), "silent", "rule" (it broke one).
  virtual void worker_lost(WorkerId, std::string_view /*how*/) {}
  // A route: what decided it ("prefix", "time", "only_choice") and the prompt tokens expected hit.
  virtual void routed(std::string_view /*reason*/, uint32_t /*cached*/) {}
  virtual void status(const ClusterStatus&) {}  // each sweep (100 ms), and what clients are told
};

}  // namespace headrace::coordinator
