#include <cstdio>
#include <memory>
#include <string>

#include "coordinator/prometheus_probes.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/output.h"
#include "worker/prometheus_probes.h"

namespace headrace::cli {

namespace {

struct Listed {
  const char* component;
  std::span<const MetricSpec> specs;
};

int list_metrics(bool json) {
  const Listed all[] = {{"coordinator", coordinator::metric_specs()},
                        {"worker", worker::metric_specs()},
                        {"both", build_metric_specs()},
                        {"both", process_metric_specs()}};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [component, specs] : all) {
    for (const MetricSpec& spec : specs) {
      if (json) {
        rows.push_back({{"name", spec.name},
                        {"type", name(spec.type)},
                        {"unit", spec.unit},
                        {"component", component},
                        {"help", spec.help}});
        continue;
      }
      std::printf("%-48s %-10s %-22s %-12s %s\n", std::string(spec.name).c_str(), name(spec.type),
                  std::string(spec.unit).c_str(), component, std::string(spec.help).c_str());
    }
  }
  if (json) print_json({{"metrics", rows}});
  return kExitOk;
}

}  // namespace

void add_metrics(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("metrics", "What a Prometheus can see of a cluster");
  command->require_subcommand(1);
  CLI::App* list =
      command->add_subcommand("list", "All metrics with type, unit, who has them, and meaning");
  const auto json = std::make_shared<bool>(false);
  list->add_flag("--json", *json, "One JSON object");
  list->callback([json, &action] { action = [json] { return list_metrics(*json); }; });
}

}  // namespace headrace::cli
