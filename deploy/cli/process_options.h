#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "protocol/error.h"

namespace headrace::cli {

// What `serve`, `coordinator` and `worker` share: processes that run until a signal.
struct ProcessOptions {
  std::string metrics;            // HOST:PORT, or kNoMetrics
  std::string metrics_advertise;  // HOST or HOST:PORT; empty: see advertised()
  int drain_timeout = 0;
  bool insecure_mesh = false;
  bool json = false;

  // `metrics_default` and what --help says of it.
  void add_to(CLI::App& command, const char* metrics_default, const std::string& metrics_help);
  // The user chose the address of the metrics.
  bool metrics_given() const;
  std::chrono::seconds drain() const { return std::chrono::seconds(drain_timeout); }
  // Ok if the metrics may be shown there, see check_exposure, and are if they are advertised.
  Status check_metrics_exposure() const;
  // For a child process: --drain-timeout and --insecure-mesh.
  std::vector<std::string> arguments() const;

 private:
  const CLI::Option* metrics_option_ = nullptr;
};

// --prefix-cache on|off, and the same for a child process.
void add_prefix_cache(CLI::App& command, bool& on);
std::vector<std::string> prefix_cache_arguments(bool on);

}  // namespace headrace::cli
