#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "deploy/cli/answer.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "deploy/cli/status_port.h"
#include "deploy/cli/supervisor.h"
#include "protocol/asio_runtime.h"
#include "protocol/client.h"
#include "worker/model_file.h"

namespace headrace::cli {

namespace {

constexpr int64_t kWorkersMax = 64;  // of each role on one machine
constexpr Duration kStatusWithin = 1s;
constexpr Duration kWatchEvery = 1s;
constexpr Duration kMissing = 10s;  // a worker that lives, and that the coordinator has lost

struct ServeCommand {
  std::string model;
  std::string listen = "127.0.0.1:7400";
  std::string mesh;  // default: the port after the clients', on loopback
  int prefill = 1;
  int decode = 1;
  std::string pd = "auto";
  std::string metrics = kCoordinatorMetrics;
  bool metrics_given = false;
  bool prefix_cache = true;
  int drain_timeout = kDrainSeconds;
  EngineOptions engine;
  bool insecure_mesh = false;
  bool json = false;
};

// Nobody listens there yet. The port is free again when this returns.
Status check_free(const Endpoint& at) {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  const auto listener = network.listen(at, {}, runtime.make_strand(), [](auto) {});
  return listener ? Status{} : listener.error();
}

// One machine's cluster: which processes there are, and whether it can answer yet.
class Cluster {
 public:
  using Clock = std::chrono::steady_clock;

  Cluster(const ServeCommand& command, Endpoint listen, Endpoint mesh, ModelCard card)
      : command_(command),
        listen_(std::move(listen)),
        mesh_(std::move(mesh)),
        card_(std::move(card)),
        bar_("loading " + card_.name, false) {}

  int run() {
    supervisor_.on_marker = [this](std::string_view child, std::string_view words) {
      if (words.starts_with("load ")) load(std::string(child), std::string(words.substr(5)));
      if (ready_ && words == "joined") say(std::string(child) + " has joined again");
    };
    supervisor_.on_tick = [this] { tick(); };
    Status added = supervisor_.add("coordinator", coordinator_arguments());
    for (const auto& [name, role] : workers()) {
      if (added.ok()) added = supervisor_.add(name, worker_arguments(name, role));
    }
    if (!added.ok()) return fail(added);
    supervisor_.set_drain(std::chrono::seconds(command_.drain_timeout));
    const int status = supervisor_.run();
    // Also when the signal came before the cluster was ready: a clean stop is never silent.
    if (ready_ || status == kExitOk) say("stopped");
    return status;
  }

 private:
  std::vector<std::pair<std::string, std::string>> workers() const {
    std::vector<std::pair<std::string, std::string>> list;
    const std::string decoders = command_.prefill > 0 ? "decode" : "both";
    for (int i = 0; i < command_.prefill; ++i) {
      list.emplace_back("prefill-" + std::to_string(i), "prefill");
    }
    for (int i = 0; i < command_.decode; ++i) {
      list.emplace_back((decoders == "both" ? "worker-" : "decode-") + std::to_string(i), decoders);
    }
    return list;
  }

  std::vector<std::string> coordinator_arguments() const {
    std::vector<std::string> words{"coordinator",      "--listen",
                                   to_string(listen_), "--mesh",
                                   to_string(mesh_),   "--pd",
                                   command_.pd,        "--supervised",
                                   "--drain-timeout",  std::to_string(command_.drain_timeout)};
    if (command_.insecure_mesh) words.push_back("--insecure-mesh");
    // Not named, it may become another one if it is taken.
    if (command_.metrics_given) words.insert(words.end(), {"--metrics", command_.metrics});
    return words;
  }

  // Where workers show themselves: beside the coordinator, at any port.
  std::string worker_metrics() const {
    if (command_.metrics == kNoMetrics) return kNoMetrics;
    return to_string(Endpoint{parse_endpoint(command_.metrics)->host, 0});
  }

  std::vector<std::string> worker_arguments(const std::string& name,
                                            const std::string& role) const {
    std::vector<std::string> words{"worker",         "--role", role, "--join",
                                   to_string(mesh_), "--name", name, "--supervised"};
    for (const std::string& word :
         {std::string("--prefix-cache"), std::string(command_.prefix_cache ? "on" : "off"),
          std::string("--drain-timeout"), std::to_string(command_.drain_timeout)})
      words.push_back(word);
    words.insert(words.end(), {"--metrics", worker_metrics()});
    if (command_.insecure_mesh) words.push_back("--insecure-mesh");
    const auto engine = command_.engine.arguments();
    words.insert(words.end(), engine.begin(), engine.end());
    words.push_back("--");
    words.push_back(command_.model);
    return words;
  }

  void load(std::string child, const std::string& share) {
    if (ready_) return;
    loaded_[std::move(child)] = parse_number(share, 0, 1).value_or(0);
    double sum = 0;
    for (const auto& [name, part] : loaded_) sum += part;
    bar_.show(sum / (command_.prefill + command_.decode));
  }

  // Until the cluster can answer: asks it. Then: looks after the workers.
  void tick() {
    if (ready_) return watch();
    if (!client_) {
      auto made = client::Client::connect(listen_, kStatusWithin);
      if (!made) return;
      client_ = std::move(*made);
    }
    const auto status = client_->status(kStatusWithin);
    if (!status) return client_.reset();
    const size_t all = static_cast<size_t>(command_.prefill + command_.decode);
    if (!status->ready || status->workers.size() < all) return;
    ready_ = true;
    supervisor_.up();
    client_.reset();
    bar_.finish();
    announce(status->metrics);
  }

  // A worker that has joined and is missing for kMissing, though its process lives, is stuck: it is
  // killed, and so started again. The coordinator is asked aside: signals are not kept waiting.
  void watch() {
    const auto now = Clock::now();
    if (!asking_.valid()) {
      if (now < ask_at_) return;
      asking_ = std::async(std::launch::async, [at = listen_] {
        auto made = client::Client::connect(at, kStatusWithin);
        return made ? (*made)->status(kStatusWithin) : Result<client::ClusterStatus>(made.error());
      });
      return;
    }
    if (asking_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    ask_at_ = now + kWatchEvery;
    const auto status = asking_.get();
    if (!status) return seen_.clear();  // nothing is known: they will be seen again
    for (const auto& [name, role] : workers()) look_after(name, *status, now);
  }

  void look_after(const std::string& name, const client::ClusterStatus& status,
                  Clock::time_point now) {
    const pid_t pid = supervisor_.pid(name);
    for (const auto& worker : status.workers) {
      if (pid > 0 && worker.pid == static_cast<uint64_t>(pid)) {
        seen_[name] = {pid, now};
        return;
      }
    }
    const auto seen = seen_.find(name);
    if (seen == seen_.end() || seen->second.first != pid) return;
    if (now - seen->second.second < kMissing) return;
    say(name + " has not answered for " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kMissing).count()) +
        " s; it is killed");
    seen_.erase(seen);
    supervisor_.kill(name);
  }

  void announce(const Endpoint& metrics) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    double ceiling = 0;
    if (const auto path = cpu_path_of(command_.engine.device)) {
      const auto limits = machine_limits(state_folder(command_.engine.state_dir), *path,
                                         command_.engine.threads, kQuickMeasure, {});
      ceiling = ceiling_tokens_per_second(limits, card_.cost);
    }
    if (command_.json) {
      print_json({{"event", "ready"},
                  {"seconds", seconds},
                  {"clients", to_string(listen_)},
                  {"mesh", to_string(mesh_)},
                  {"metrics", metrics.port == 0 ? "" : to_string(metrics)},
                  {"model", card_.name},
                  {"prefill", command_.prefill},
                  {"decode", command_.decode},
                  {"ceiling_tokens_per_second", ceiling}});
      return;
    }
    char text[160];
    std::snprintf(text, sizeof text, "ready after %.1f s: ", seconds);
    const std::string roles = command_.prefill > 0
                                  ? std::to_string(command_.prefill) + " prefill, " +
                                        std::to_string(command_.decode) + " decode"
                                  : std::to_string(command_.decode);
    say(text + card_.name + "; workers: " + roles);
    say("clients  " + to_string(listen_) + "   try: headrace run --connect " + to_string(listen_) +
        " --chat \"Why is the sky blue?\"");
    say("mesh     " + to_string(mesh_));
    if (metrics.port != 0) say("metrics  http://" + to_string(metrics) + "/metrics");
    if (ceiling > 0) {
      std::snprintf(text, sizeof text, "ceiling  %.0f tok/s for one answer: %s to read a token",
                    ceiling, human_bytes(static_cast<double>(card_.cost.weight_bytes)).c_str());
      say(text);
    }
  }

  const ServeCommand& command_;
  Endpoint listen_;
  Endpoint mesh_;
  ModelCard card_;
  Clock::time_point begun_ = Clock::now();
  Supervisor supervisor_;
  std::unique_ptr<client::Client> client_;
  ProgressBar bar_;
  std::map<std::string, double> loaded_;  // by child
  bool ready_ = false;
  // By worker: its process, and when the coordinator last had it.
  std::map<std::string, std::pair<pid_t, Clock::time_point>> seen_;
  Clock::time_point ask_at_;
  std::future<Result<client::ClusterStatus>> asking_;
};

Result<Endpoint> mesh_endpoint(const ServeCommand& command, const Endpoint& listen) {
  if (!command.mesh.empty()) return parse_endpoint(command.mesh);
  if (listen.port == UINT16_MAX) {
    return error(Errc::kInvalid, "--listen port 65535 leaves none for the mesh: give --mesh");
  }
  return Endpoint{"127.0.0.1", static_cast<uint16_t>(listen.port + 1)};
}

int serve(const ServeCommand& command) {
  const Endpoint listen = *parse_endpoint(command.listen);
  const auto mesh = mesh_endpoint(command, listen);
  if (!mesh) return fail_usage(mesh.error().message);
  if (listen.port == 0 || mesh->port == 0) {
    return fail_usage("serve needs fixed ports: --listen and --mesh take a port from 1 to 65535");
  }
  if (listen == *mesh) return fail_usage("--listen and --mesh are the same address");
  if (command.prefill == 0 && command.pd == "always") {
    return fail_usage("--pd always needs prefill workers, --prefill 0 has none");
  }
  // All that can be known before anything is started.
  for (const auto& [at, what] : {std::pair(listen, "the client port"), {*mesh, "the mesh"}}) {
    Status fine = check_exposure(at, what, command.insecure_mesh);
    if (fine.ok()) fine = check_free(at);
    if (!fine.ok()) return fail(fine);
  }
  const auto device = make_device(command.engine.device, 1);
  if (!device) return fail(device.error());
  worker::CardOptions options;
  options.block_tokens = command.engine.block_tokens;
  options.kv_type = (*device)->kv_type();
  options.quantizes = (*device)->quantizes();
  const auto file = worker::ModelFile::open(command.model);
  if (!file) return fail(file.error());
  return Cluster(command, listen, *mesh, (*file)->card(options)).run();
}

}  // namespace

void add_serve(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("serve", "A whole cluster on this machine, until Ctrl-C");
  const auto options = std::make_shared<ServeCommand>();
  command->add_option("MODEL", options->model, "GGUF file")->required();
  command->add_option("--listen", options->listen, "HOST:PORT for clients")
      ->check(endpoint())
      ->capture_default_str();
  command
      ->add_option("--mesh", options->mesh,
                   "HOST:PORT between the processes; default: the next port, on loopback")
      ->check(endpoint());
  command
      ->add_option("--prefill", options->prefill,
                   "Prefill workers; 0: the others do it themselves (role both)")
      ->check(whole(0, kWorkersMax))
      ->capture_default_str();
  command->add_option("--decode", options->decode, "Decode workers")
      ->check(whole(1, kWorkersMax))
      ->capture_default_str();
  command->add_option("--pd", options->pd, "Prefill on prefill workers: auto, always or never")
      ->check(pd_mode())
      ->capture_default_str();
  command
      ->add_option("--prefix-cache", options->prefix_cache,
                   "Keep the KV of prompts for later ones that begin alike: on or off")
      ->transform(on_off())
      ->default_str("on");
  command
      ->add_option("--drain-timeout", options->drain_timeout,
                   "Seconds that running answers get after SIGTERM")
      ->check(whole(0, kDrainSecondsMax))
      ->capture_default_str();
  const auto* metrics =
      command
          ->add_option("--metrics", options->metrics,
                       "HOST:PORT for metrics and health, or none; if the default is taken: any")
          ->check(metrics_address())
          ->capture_default_str();
  command->add_flag("--insecure-mesh", options->insecure_mesh,
                    "Allow other than loopback addresses although nothing is encrypted yet");
  command->add_flag("--json", options->json, "Events as JSON objects, one a line");
  options->engine.add_to(*command);
  command->callback([options, metrics, &action] {
    options->metrics_given = metrics->count() > 0;
    action = [options] { return serve(*options); };
  });
}

}  // namespace headrace::cli
