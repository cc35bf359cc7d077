#include <signal.h>

#include <chrono>
#include <future>
#include <memory>

#include "coordinator/coordinator_node.h"
#include "coordinator/gateway.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "protocol/asio_runtime.h"

namespace headrace::cli {

namespace {

struct CoordinatorCommand {
  std::string listen = "127.0.0.1:7400";
  std::string mesh = "127.0.0.1:7401";
  std::string pd = "auto";
  bool insecure_mesh = false;
  bool supervised = false;
  bool json = false;
};

// Grows from one life of a coordinator to the next, also on another machine with a sane clock.
Term fresh_term() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Term{
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count())};
}

int coordinate(const CoordinatorCommand& command) {
  const Endpoint listen = *parse_endpoint(command.listen), mesh = *parse_endpoint(command.mesh);
  for (const auto& [at, what] : {std::pair(listen, "the client port"), {mesh, "the mesh"}}) {
    const Status open = check_exposure(at, what, command.insecure_mesh);
    if (!open.ok()) return fail(open);
  }
  OsRandom random;
  AsioRuntime runtime(1);  // its tasks use `random` until it has ended
  AsioNetwork network(runtime);
  std::promise<void> stop;
  runtime.on_signals(runtime.make_strand(), {SIGTERM, SIGINT},
                     [&stop, over = std::make_shared<bool>(false)](int) {
                       if (!std::exchange(*over, true)) stop.set_value();
                     });
  coordinator::CoordinatorOptions options;
  options.mesh = mesh;
  options.dispatcher.term = fresh_term();
  options.dispatcher.pd = *coordinator::parse_pd_mode(command.pd);
  auto node = coordinator::CoordinatorNode::start(runtime.make_strand(), network, random, options);
  if (!node) return fail(node.error());
  auto gateway = coordinator::Gateway::start({.listen = listen}, (*node)->dispatcher(), random);
  if (!gateway) return fail(gateway.error());

  const std::string clients = to_string((*gateway)->endpoint());
  const std::string workers = to_string((*node)->mesh());
  if (command.json) {
    print_json({{"event", "listening"}, {"clients", clients}, {"mesh", workers}});
  } else if (command.supervised) {
    mark("listening");
  } else {
    say("coordinator: clients " + clients + ", mesh " + workers);
  }
  stop.get_future().wait();
  (*gateway)->stop();
  return kExitOk;
}

}  // namespace

void add_coordinator(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("coordinator", "The coordinator alone; workers join its mesh");
  const auto options = std::make_shared<CoordinatorCommand>();
  command->add_option("--listen", options->listen, "HOST:PORT for clients")
      ->check(endpoint())
      ->capture_default_str();
  command->add_option("--mesh", options->mesh, "HOST:PORT for workers")
      ->check(endpoint())
      ->capture_default_str();
  command->add_option("--pd", options->pd, "Prefill on prefill workers: auto, always or never")
      ->check(pd_mode())
      ->capture_default_str();
  command->add_flag("--insecure-mesh", options->insecure_mesh,
                    "Allow other than loopback addresses although nothing is encrypted yet");
  command->add_flag("--json", options->json, "Events as JSON objects, one a line");
  command->add_flag("--supervised", options->supervised)->group("");
  command->callback([options, &action] { action = [options] { return coordinate(*options); }; });
}

}  // namespace headrace::cli
