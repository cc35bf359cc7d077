#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "deploy/cli/advertise.h"
#include "deploy/cli/answer.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "deploy/cli/placement.h"
#include "deploy/cli/process_options.h"
#include "deploy/cli/status_port.h"
#include "deploy/cli/supervisor.h"
#include "deploy/cli/transport.h"
#include "kernels/cuda_device.h"
#include "protocol/asio_runtime.h"
#include "protocol/client.h"
#include "protocol/slowdown.h"
#include "worker/model_file.h"

namespace headrace::cli {

namespace {

constexpr int64_t kWorkersMax = 64;  // of each role on one machine
constexpr int kCapabilityMin = 80;   // of a GPU
constexpr Duration kStatusWithin = 1s;
constexpr Duration kWatchEvery = 500ms;
// A worker that lives and that the coordinator has lost: one that only lost its connection joins
// again within about a second.
constexpr Duration kMissing = 2s * kSlowdown;
constexpr int kMissingAnswers = 3;  // so often at least: a pause of this process itself is no sign

struct ServeCommand {
  std::string model;
  std::string listen = "127.0.0.1:7400";
  std::string mesh;            // default: the port after the clients', on loopback
  std::optional<int> prefill;  // none: as place_workers has it
  std::optional<int> decode;
  std::string pd = "auto";
  bool prefix_cache = true;
  EngineOptions engine;
  ProcessOptions process;
  TransportOptions transport;
};

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

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
  // A process that the coordinator has had, and for how many answers since when it has not.
  struct Seen {
    pid_t pid = -1;
    Clock::time_point missing_since;
    int missing = 0;
  };

  Cluster(const ServeCommand& command, std::vector<Placed> workers, Endpoint listen, Endpoint mesh,
          ModelCard card)
      : command_(command),
        workers_(std::move(workers)),
        listen_(std::move(listen)),
        mesh_(std::move(mesh)),
        card_(std::move(card)),
        bar_("loading " + card_.name, false) {}

  int run() {
    supervisor_.on_marker = [this](std::string_view child, std::string_view words) {
      if (words.starts_with("load ")) load(std::string(child), std::string(words.substr(5)));
      if (words == "joined" && !joined_.insert(std::string(child)).second)
        say(std::string(child) + " has joined again");
    };
    supervisor_.on_tick = [this] { tick(); };
    Status added = supervisor_.add("coordinator", coordinator_arguments());
    for (const Placed& worker : workers_) {
      if (added.ok()) added = supervisor_.add(worker.name, worker_arguments(worker));
    }
    if (!added.ok()) return fail(added);
    supervisor_.set_drain(command_.process.drain());
    const int status = supervisor_.run();
    // Also when the signal came before the cluster was ready: a clean stop is never silent.
    if (ready_ || status == kExitOk) say("stopped");
    return status;
  }

 private:
  int of_role(std::string_view role) const {
    return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                          [&](const Placed& w) { return w.role == role; }));
  }

  std::vector<std::string> coordinator_arguments() const {
    std::vector<std::string> words{"coordinator", "--listen",       to_string(listen_),
                                   "--mesh",      to_string(mesh_), "--pd",
                                   command_.pd,   "--supervised"};
    append(words, command_.process.arguments());
    // Not named, it may become another one if it is taken.
    if (command_.process.metrics_given()) append(words, {"--metrics", command_.process.metrics});
    const std::string& told = command_.process.metrics_advertise;
    if (!told.empty()) append(words, {"--metrics-advertise", told});
    return words;
  }

  // Where workers show themselves: beside the coordinator, at any port.
  std::string worker_metrics() const {
    if (command_.process.metrics == kNoMetrics) return kNoMetrics;
    return to_string(Endpoint{parse_endpoint(command_.process.metrics)->host, 0});
  }

  std::vector<std::string> worker_arguments(const Placed& worker) const {
    std::vector<std::string> words{"worker",         "--role", worker.role, "--join",
                                   to_string(mesh_), "--name", worker.name, "--supervised"};
    append(words, prefix_cache_arguments(command_.prefix_cache));
    append(words, command_.process.arguments());
    append(words, {"--metrics", worker_metrics()});
    const std::string& told = command_.process.metrics_advertise;
    if (!told.empty()) append(words, {"--metrics-advertise", advertised_host(told)});
    EngineOptions engine = command_.engine;
    engine.device = worker.device;
    append(words, engine.arguments());
    append(words, command_.transport.arguments());
    if (worker.share < 1) append(words, {"--gpu-share", std::to_string(worker.share)});
    append(words, {"--", command_.model});
    return words;
  }

  void load(std::string child, const std::string& share) {
    if (ready_) return;
    loaded_[std::move(child)] = parse_number(share, 0, 1).value_or(0);
    double sum = 0;
    for (const auto& [name, part] : loaded_) sum += part;
    bar_.show(sum / static_cast<double>(workers_.size()));
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
    if (!status->ready || status->workers.size() < workers_.size()) return;
    ready_ = true;
    supervisor_.up();
    client_.reset();
    bar_.finish();
    announce(status->metrics);
  }

  // A worker that had joined and that the coordinator has lost for kMissing, though its process
  // lives, is stuck: it is killed, and so started again. The coordinator is asked aside: signals
  // are not kept waiting.
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
    for (const Placed& worker : workers_) look_after(worker.name, *status, now);
  }

  void look_after(const std::string& name, const client::ClusterStatus& status,
                  Clock::time_point now) {
    const pid_t pid = supervisor_.pid(name);
    for (const auto& worker : status.workers) {
      if (pid > 0 && worker.pid == static_cast<uint64_t>(pid)) {
        seen_[name] = {pid, {}, 0};
        return;
      }
    }
    const auto found = seen_.find(name);
    if (found == seen_.end() || found->second.pid != pid) return;
    Seen& seen = found->second;
    if (seen.missing++ == 0) seen.missing_since = now;
    if (now - seen.missing_since < kMissing || seen.missing < kMissingAnswers) return;
    say(name + " lives, but the coordinator has lost it for " + std::to_string(kMissing / 1s) +
        " s; it is killed");
    seen_.erase(found);
    supervisor_.kill(name);
  }

  void announce(const Endpoint& metrics) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    // The last worker decodes; its process has measured what it computes on.
    const MachineLimits limits = device_limits(state_folder(command_.engine.state_dir),
                                               workers_.back().device, command_.engine.threads, {});
    const double ceiling = ceiling_tokens_per_second(limits, card_.cost);
    if (command_.process.json) {
      print_json({{"event", "ready"},
                  {"seconds", seconds},
                  {"clients", to_string(listen_)},
                  {"mesh", to_string(mesh_)},
                  {"metrics", metrics.port == 0 ? "" : to_string(metrics)},
                  {"model", card_.name},
                  {"prefill", of_role("prefill")},
                  {"decode", static_cast<int>(workers_.size()) - of_role("prefill")},
                  {"devices", devices()},
                  {"ceiling_tokens_per_second", ceiling}});
      return;
    }
    char text[160];
    std::snprintf(text, sizeof text, "ready after %.1f s: ", seconds);
    const int prefill = of_role("prefill");
    const int others = static_cast<int>(workers_.size()) - prefill;
    const std::string roles =
        prefill > 0 ? std::to_string(prefill) + " prefill, " + std::to_string(others) + " decode"
                    : std::to_string(others);
    say(text + card_.name + "; workers: " + roles);
    if (gpu_of(workers_.front().device)) {
      std::string gpus;
      for (const Placed& w : workers_) gpus += "  " + w.name + " " + w.device;
      say("GPUs   " + gpus);
    }
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

  std::vector<std::string> devices() const {
    std::vector<std::string> all;
    for (const Placed& worker : workers_) all.push_back(worker.device);
    return all;
  }

  const ServeCommand& command_;
  const std::vector<Placed> workers_;
  Endpoint listen_;
  Endpoint mesh_;
  ModelCard card_;
  Clock::time_point begun_ = Clock::now();
  Supervisor supervisor_;
  std::unique_ptr<client::Client> client_;
  ProgressBar bar_;
  std::map<std::string, double> loaded_;  // by child
  bool ready_ = false;
  std::set<std::string> joined_;
  std::map<std::string, Seen> seen_;  // by worker
  Clock::time_point ask_at_;
  std::future<Result<client::ClusterStatus>> asking_;
};

// A port that was not chosen may become another one.
Status check_metrics(const ProcessOptions& process) {
  if (!process.metrics_given() || process.metrics == kNoMetrics) return {};
  return check_free(*parse_endpoint(process.metrics));
}

Result<Endpoint> mesh_endpoint(const ServeCommand& command, const Endpoint& listen) {
  if (!command.mesh.empty()) return parse_endpoint(command.mesh);
  if (listen.port == UINT16_MAX) {
    return error(Errc::kInvalid, "--listen port 65535 leaves none for the mesh: give --mesh");
  }
  return Endpoint{"127.0.0.1", static_cast<uint16_t>(listen.port + 1)};
}

// What can be known of the devices. A GPU is only looked at: a device of it here, in the process
// that computes nothing, would keep some of its memory.
Result<worker::CardOptions> check_devices(const ServeCommand& command,
                                          const std::vector<Placed>& workers) {
  const auto gpus = kernels::cuda_gpus(nullptr);
  for (const Placed& worker : workers) {
    const auto ordinal = gpu_of(worker.device);
    if (!ordinal) break;
    std::string why;
    if (kernels::cuda_devices(&why) == 0)
      return error(Errc::kInvalid, "--device " + worker.device + ": " + why);
    if (static_cast<size_t>(*ordinal) >= gpus.size())
      return error(Errc::kInvalid, worker.device + ": there are " + std::to_string(gpus.size()) +
                                       " GPUs, numbered from 0");
    if (const auto& gpu = gpus[static_cast<size_t>(*ordinal)]; gpu.capability < kCapabilityMin)
      return error(Errc::kInvalid, "--device " + worker.device + ": " + gpu.name +
                                       " is older than sm_" + std::to_string(kCapabilityMin));
  }
  worker::CardOptions options;
  options.block_tokens = command.engine.block_tokens;
  if (gpu_of(workers.front().device)) return options;
  const auto device =
      make_device(command.engine.device, 1, command.engine.kv_type, command.engine.prefill_library);
  if (!device) return device.error();
  return worker::CardOptions::of(**device, command.engine.block_tokens);
}

int serve(const ServeCommand& command) {
  write_aside();
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
  const auto workers = place_workers({command.engine.device, command.prefill, command.decode},
                                     kernels::cuda_devices(nullptr));
  if (!workers) return fail_usage(workers.error().message);
  if (command.pd == "always" && workers->front().role != "prefill") {
    return fail_usage("--pd always needs prefill workers, and one GPU does both: give --prefill");
  }
  // All that can be known before anything is started.
  for (const auto& [at, what] : {std::pair(listen, "the client port"), {*mesh, "the mesh"}}) {
    if (Status open = check_exposure(at, what, command.process.insecure_mesh); !open.ok())
      return fail_usage(open.message);
    if (Status free = check_free(at); !free.ok()) return fail(free);
  }
  if (Status open = command.process.check_metrics_exposure(); !open.ok())
    return fail_usage(open.message);
  if (Status shown = check_metrics(command.process); !shown.ok()) return fail(shown);
  const auto options = check_devices(command, *workers);
  if (!options) return fail(options.error());
  const auto transport = command.transport.choose(workers->front().device);
  if (!transport) return fail(transport.error());
  if (!transport->sentence.empty()) say(transport->sentence);
  const auto file = worker::ModelFile::open(command.model);
  if (!file) return fail(file.error());
  return Cluster(command, *workers, listen, *mesh, (*file)->card(*options)).run();
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
      ->add_option(
          "--prefill", options->prefill,
          "Prefill workers; 0: the others do it themselves (role both). Default: 1; a third "
          "of the GPUs, with one GPU none")
      ->check(whole(0, kWorkersMax));
  command
      ->add_option("--decode", options->decode,
                   "Decode workers. Default: 1; all GPUs that are left")
      ->check(whole(1, kWorkersMax));
  command->add_option("--pd", options->pd, "Prefill on prefill workers: auto, always or never")
      ->check(pd_mode())
      ->capture_default_str();
  add_prefix_cache(*command, options->prefix_cache);
  options->process.add_to(*command, kCoordinatorMetrics, "if the default is taken: any");
  options->engine.add_to(*command, true);
  options->transport.add_to(*command);
  command->callback([options, &action] { action = [options] { return serve(*options); }; });
}

}  // namespace headrace::cli
