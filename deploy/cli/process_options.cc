#include "deploy/cli/process_options.h"

#include "deploy/cli/advertise.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/status_port.h"

namespace headrace::cli {

void ProcessOptions::add_to(CLI::App& command, const char* metrics_default,
                            const std::string& metrics_help) {
  metrics = metrics_default;
  drain_timeout = kDrainSeconds;
  command
      .add_option("--drain-timeout", drain_timeout,
                  "Seconds that running answers get after SIGTERM or Ctrl-C")
      ->check(whole(0, kDrainSecondsMax))
      ->capture_default_str();
  metrics_option_ = command
                        .add_option("--metrics", metrics,
                                    "HOST:PORT for metrics and health, or none; " + metrics_help)
                        ->check(metrics_address())
                        ->capture_default_str();
  command
      .add_option("--metrics-advertise", metrics_advertise,
                  "HOST or HOST:PORT where others reach --metrics; default: as it listens, for "
                  "0.0.0.0 and [::] this machine's address on the way to the rest of the cluster")
      ->check(advertised_address());
  command.add_flag("--insecure-mesh", insecure_mesh,
                   "Allow other than loopback addresses although nothing is encrypted yet");
  command.add_flag("--json", json, "Events as JSON objects, one a line");
}

bool ProcessOptions::metrics_given() const { return metrics_option_->count() > 0; }

Status ProcessOptions::check_metrics_exposure() const {
  if (metrics == kNoMetrics) {
    if (metrics_advertise.empty()) return {};
    return error(Errc::kInvalid, "--metrics none leaves nothing for --metrics-advertise");
  }
  return check_exposure(*parse_endpoint(metrics), "the metrics port", insecure_mesh);
}

std::vector<std::string> ProcessOptions::arguments() const {
  std::vector<std::string> words{"--drain-timeout", std::to_string(drain_timeout)};
  if (insecure_mesh) words.push_back("--insecure-mesh");
  return words;
}

void add_prefix_cache(CLI::App& command, bool& on) {
  command
      .add_option("--prefix-cache", on,
                  "Keep the KV of prompts for later ones that begin alike: on or off")
      ->transform(on_off())
      ->default_str("on");
}

std::vector<std::string> prefix_cache_arguments(bool on) {
  return {"--prefix-cache", on ? "on" : "off"};
}

}  // namespace headrace::cli
