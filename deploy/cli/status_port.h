#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "coordinator/prometheus_probes.h"
#include "protocol/metrics.h"
#include "protocol/status_server.h"
#include "worker/prometheus_probes.h"

namespace headrace::cli {

// --metrics of a command: "HOST:PORT", or "none".
CLI::Validator metrics_address();
inline constexpr const char* kNoMetrics = "none";
inline constexpr const char* kCoordinatorMetrics = "127.0.0.1:8081";
inline constexpr const char* kWorkerMetrics = "127.0.0.1:0";

// The eyes of a coordinator and the port where others look through them.
class CoordinatorStatusPort {
 public:
  // A Dispatcher that says nothing for so long is not ready, whatever it said last.
  static constexpr Duration kSilent = std::chrono::seconds(10);

  // `given`: the user chose the address. One that was not chosen and is taken (a second cluster on
  // this machine) becomes any free one.
  static Result<std::unique_ptr<CoordinatorStatusPort>> open(const std::string& at, bool given);

  std::shared_ptr<coordinator::Probes> probes() const { return probes_; }
  Endpoint endpoint() const;  // port 0: none

 private:
  Metrics metrics_;
  StatusBoard board_;
  std::shared_ptr<coordinator::PrometheusProbes> probes_;
  std::unique_ptr<StatusServer> server_;  // last: it ends first
};

// The same of a worker; open from its first second, also while the model loads.
class WorkerStatusPort {
 public:
  static Result<std::unique_ptr<WorkerStatusPort>> open(const std::string& at,
                                                        const std::string& role);

  std::shared_ptr<worker::Probes> probes() const { return probes_; }
  Endpoint endpoint() const;  // port 0: none

  void loading(double share);
  void loaded(const ModelCard& card, uint32_t blocks);
  // Any thread. Ready: the coordinator knows this worker and it takes work.
  void joined();
  void lost(const std::string& why);
  void draining();

 private:
  explicit WorkerStatusPort(const std::string& role) : metrics_({{"role", role}}) {}
  void tell(bool ready, std::string why);

  Metrics metrics_;
  StatusBoard board_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::shared_ptr<worker::PrometheusProbes> probes_;
  std::atomic<bool> draining_{false};
  std::unique_ptr<StatusServer> server_;  // last: it ends first
};

}  // namespace headrace::cli
