#include <cstdio>
#include <memory>

#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/output.h"
#include "deploy/cli/remote.h"

namespace headrace::cli {

namespace {

using Json = nlohmann::ordered_json;

struct StatusOptions {
  std::string connect;
  bool json = false;
};

// Empty where nobody listens.
std::string address_text(const Endpoint& at) { return at.port == 0 ? "" : to_string(at); }

Json saturation_json(const Saturation& s) {
  return {{"bandwidth", s.bandwidth}, {"compute", s.compute}, {"wall", name(s.wall)}};
}

// A phase that did not run is idle where it is the worker's own, and else left out.
std::string saturation_text(const char* phase, const std::string& role, const Saturation& s) {
  if (s == Saturation{}) {
    return role == phase || role == "both" ? std::string("; ") + phase + " idle" : std::string();
  }
  char text[64];
  std::snprintf(text, sizeof text, "; %s %.0f %% bandwidth, %.0f %% compute, wall %s", phase,
                s.bandwidth * 100, s.compute * 100, name(s.wall));
  return text;
}

Json worker_json(const client::Worker& w) {
  return {{"id", w.id},
          {"name", w.name},
          {"role", w.role},
          {"state", w.state},
          {"pid", w.pid},
          {"device", w.device},
          {"kv", to_string(w.kv)},
          {"in_flight", w.in_flight},
          {"running", w.running},
          {"steps", w.steps},
          {"metrics", address_text(w.metrics)},
          {"prefill", saturation_json(w.prefill)},
          {"decode", saturation_json(w.decode)},
          {"blocks",
           {{"total", w.blocks.total},
            {"free", w.blocks.free},
            {"active", w.blocks.active},
            {"cached", w.blocks.cached},
            {"incoming", w.blocks.incoming},
            {"pinned", w.blocks.pinned},
            {"quarantined", w.blocks.quarantined}}}};
}

Json to_json(const client::ClusterStatus& status) {
  Json models = Json::array(), workers = Json::array(), totals = Json::object();
  for (const auto& m : status.models) {
    models.push_back({{"name", m.name},
                      {"architecture", m.architecture},
                      {"digest", hex(m.digest)},
                      {"context", m.context},
                      {"vocabulary", m.vocabulary},
                      {"kv_layout", m.kv_layout},
                      {"kv_block_tokens", m.block_tokens},
                      {"kv_block_bytes", m.block_bytes},
                      {"numerics", m.numerics},
                      {"chat", m.chat}});
  }
  for (const auto& w : status.workers) workers.push_back(worker_json(w));
  for (const auto& [name, value] : status.totals) totals[name] = value;
  Json object = {{"ready", status.ready}};
  if (!status.ready) object["why"] = status.not_ready;
  object["leaving"] = status.leaving;
  object["metrics"] = address_text(status.metrics);
  object["running"] = status.running;
  object["waiting"] = status.waiting;
  object["draining"] = status.draining;
  object["models"] = models;
  object["workers"] = workers;
  object["totals"] = totals;
  return object;
}

void print_text(const client::ClusterStatus& status) {
  if (status.leaving) std::printf("leaving: no new requests\n");
  std::printf("%s\n", status.ready ? "ready" : ("not ready: " + status.not_ready).c_str());
  for (const auto& m : status.models) {
    // A GPU's arithmetic names it already.
    const std::string kv = ", KV " + m.kv_layout.substr(0, m.kv_layout.find(' '));
    const bool told = m.numerics.find(kv) != std::string::npos;
    std::printf("model    %s, context %u, %s%s\n", m.name.c_str(), m.context, m.numerics.c_str(),
                told ? "" : kv.c_str());
  }
  std::printf("requests %u running, %u waiting, %u not fetched\n", status.running, status.waiting,
              status.draining);
  if (status.metrics.port != 0) std::printf("metrics  %s\n", to_string(status.metrics).c_str());
  for (const auto& w : status.workers) {
    std::printf("worker   %-12s %-8s %-8s pid %-8llu %s; %u of %u KV blocks free%s%s\n",
                w.name.c_str(), w.role.c_str(), w.state.c_str(),
                static_cast<unsigned long long>(w.pid), w.device.c_str(), w.blocks.free,
                w.blocks.total, saturation_text("prefill", w.role, w.prefill).c_str(),
                saturation_text("decode", w.role, w.decode).c_str());
  }
}

int status(const StatusOptions& options) {
  const auto at = parse_endpoint(options.connect);
  if (!at) return fail(at.error());
  auto connection = connect_client(*at);
  if (!connection) return fail(connection.error());
  const auto answer = (*connection)->status();
  if (!answer) return fail(answer.error());
  if (options.json) {
    print_json(to_json(*answer));
  } else {
    print_text(*answer);
  }
  return kExitOk;
}

}  // namespace

void add_status(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("status", "How a running cluster is");
  const auto options = std::make_shared<StatusOptions>();
  command->add_option("--connect", options->connect, "HOST:PORT of the cluster")
      ->required()
      ->check(endpoint());
  command->add_flag("--json", options->json, "One JSON object; 'ready' is true once it can answer");
  command->callback([options, &action] { action = [options] { return status(*options); }; });
}

}  // namespace headrace::cli
