#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "deploy/cli/answer.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "deploy/cli/supervisor.h"
#include "protocol/asio_runtime.h"
#include "protocol/client.h"
#include "worker/model_file.h"

namespace headrace::cli {

namespace {

constexpr int64_t kWorkersMax = 64;  // of each role on one machine
constexpr Duration kStatusWithin = 1s;

struct ServeCommand {
  std::string model;
  std::string listen = "127.0.0.1:7400";
  std::string mesh;  // default: the port after the clients', on loopback
  int prefill = 1;
  int decode = 1;
  std::string pd = "auto";
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
    std::vector<std::string> words{"coordinator", "--listen",       to_string(listen_),
                                   "--mesh",      to_string(mesh_), "--pd",
                                   command_.pd,   "--supervised"};
    if (command_.insecure_mesh) words.push_back("--insecure-mesh");
    return words;
  }

  std::vector<std::string> worker_arguments(const std::string& name,
                                            const std::string& role) const {
    std::vector<std::string> words{"worker",         "--role", role, "--join",
                                   to_string(mesh_), "--name", name, "--supervised"};
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

  // Until the cluster can answer: asks it.
  void tick() {
    if (ready_) return;
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
    announce();
  }

  void announce() const {
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
  command->add_flag("--insecure-mesh", options->insecure_mesh,
                    "Allow other than loopback addresses although nothing is encrypted yet");
  command->add_flag("--json", options->json, "Events as JSON objects, one a line");
  options->engine.add_to(*command);
  command->callback([options, &action] { action = [options] { return serve(*options); }; });
}

}  // namespace headrace::cli
