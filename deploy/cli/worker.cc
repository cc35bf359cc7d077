#include <signal.h>

#include <cstdio>
#include <future>
#include <map>
#include <memory>

#include "deploy/cli/commands.h"
#include "deploy/cli/loaded_model.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "protocol/asio_runtime.h"
#include "worker/worker_node.h"

namespace headrace::cli {

namespace {

constexpr int kContexts = 4;  // full contexts that the KV blocks of a worker hold, at least

struct WorkerCommand {
  std::string model;
  std::string role = "both";
  std::string join;
  std::string kv = "127.0.0.1:0";
  std::string name;
  EngineOptions engine;
  bool insecure_mesh = false;
  bool supervised = false;
  bool json = false;
};

const std::map<std::string, Role> kRoles{
    {"prefill", Role::kPrefill}, {"decode", Role::kDecode}, {"both", Role::kBoth}};

// What ends the process: a signal (ok), a refusal of the coordinator, a port in use.
using End = std::promise<Status>;

worker::MeshEvents report(const WorkerCommand& command, const LoadedModel& model, Status& last,
                          const std::function<void(Status)>& end) {
  worker::MeshEvents events;
  events.joined = [&command, &model, &last](WorkerId id) {
    last = {};
    if (command.supervised) return mark("joined");
    if (command.json) {
      print_json({{"event", "joined"},
                  {"worker", raw(id)},
                  {"role", command.role},
                  {"join", command.join},
                  {"model", model.card().name},
                  {"kv_blocks", model.engine->blocks()}});
      return;
    }
    say("worker " + std::to_string(raw(id)) + " (" + command.role + ") joined " + command.join +
        " with " + model.card().name + " on " + model.device + ", " +
        std::to_string(model.engine->blocks()) + " KV blocks");
  };
  events.lost = [&command, &last](Status why) {
    // Said once, not at each try; a supervisor says itself that the coordinator died.
    if (command.supervised || why == last) return;
    last = why;
    say("no coordinator at " + command.join + ": " + why.message + "; trying again");
  };
  events.rejected = end;
  return events;
}

int serve_until_end(const WorkerCommand& command, const LoadedModel& model) {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  OsRandom random;
  const auto strand = runtime.make_strand();
  End ended;
  const auto end = [&ended, over = std::make_shared<bool>(false)](Status why) {
    if (!std::exchange(*over, true)) ended.set_value(std::move(why));
  };
  runtime.on_signals(strand, {SIGTERM, SIGINT}, [end](int) { end({}); });
  worker::WorkerOptions options = model.worker_options(kRoles.at(command.role), command.name);
  options.kv = *parse_endpoint(command.kv);
  Status last, why;
  {
    worker::WorkerNode node(strand, network, random, *model.engine, options, model.tokenizer,
                            *parse_endpoint(command.join), report(command, model, last, end));
    node.start([end](Status started) {
      if (!started.ok()) end(std::move(started));
    });
    why = ended.get_future().get();
  }
  runtime.stop();  // while what its last tasks refer to is still there
  return why.ok() ? kExitOk : fail(why);
}

int work(WorkerCommand command) {
  if (command.name.empty()) command.name = command.role;
  const Status open =
      check_exposure(*parse_endpoint(command.kv), "the KV channel", command.insecure_mesh);
  if (!open.ok()) return fail(open);
  auto model = load_model(command.model, command.engine, kContexts, command.supervised);
  if (!model) return fail(model.error());
  return serve_until_end(command, *model);
}

}  // namespace

void add_worker(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("worker", "One worker; joins a coordinator");
  const auto options = std::make_shared<WorkerCommand>();
  command->add_option("MODEL", options->model, "GGUF file")->required();
  command->add_option("--role", options->role, "prefill, decode or both")
      ->check(CLI::Validator(
          [](std::string& text) {
            return kRoles.contains(text) ? std::string()
                                         : "takes prefill, decode or both, not '" + text + "'";
          },
          "", "role"))
      ->capture_default_str();
  command->add_option("--join", options->join, "HOST:PORT of the coordinator's mesh")
      ->required()
      ->check(endpoint());
  command->add_option("--kv", options->kv, "HOST:PORT where this worker takes KV; port 0: any")
      ->check(endpoint())
      ->capture_default_str();
  command->add_option("--name", options->name, "Name for people; default: the role");
  command->add_flag("--insecure-mesh", options->insecure_mesh,
                    "Allow other than loopback addresses although nothing is encrypted yet");
  command->add_flag("--json", options->json, "Events as JSON objects, one a line");
  command->add_flag("--supervised", options->supervised)->group("");
  options->engine.add_to(*command);
  command->callback([options, &action] { action = [options] { return work(*options); }; });
}

}  // namespace headrace::cli
