#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "coordinator/limits.h"
#include "coordinator/utf8.h"
#include "deploy/cli/advertise.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/loaded_model.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "deploy/cli/process_options.h"
#include "deploy/cli/status_port.h"
#include "deploy/cli/transport.h"
#include "protocol/asio_runtime.h"
#include "protocol/client.h"
#include "worker/worker_node.h"

namespace headrace::cli {

namespace {

constexpr int kContexts = 4;  // full contexts that the KV blocks of a worker hold, at least

struct WorkerCommand {
  std::string model;
  std::string role = "both";
  std::string join;
  std::string kv = "127.0.0.1:0";
  std::string kv_advertise;  // empty: as it listens
  bool prefix_cache = true;
  std::string name;
  ProcessOptions process;
  int load_delay_ms = 0;  // tests: what a larger model would take
  EngineOptions engine;
  TransportOptions transport;
  bool supervised = false;
};

const std::map<std::string, Role> kRoles{
    {"prefill", Role::kPrefill}, {"decode", Role::kDecode}, {"both", Role::kBoth}};

// What ends the process: a signal (ok), a refusal of the coordinator, a port in use.
using End = std::promise<Status>;

// Whether a coordinator answers clients there: the usual mistake of who joins in vain.
bool is_client_port(const Endpoint& at) {
  constexpr Duration kWithin = 500ms;
  const auto client = client::Client::connect(at, kWithin);
  return client && (*client)->hello("worker", kWithin);
}

worker::MeshEvents report(const WorkerCommand& command, const LoadedModel& model,
                          WorkerStatusPort& eyes, Status& last,
                          const std::function<void(Status)>& end) {
  worker::MeshEvents events;
  events.joined = [&command, &model, &eyes, &last](WorkerId id) {
    last = {};
    eyes.joined();
    if (command.supervised) return mark("joined");
    if (command.process.json) {
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
  events.lost = [&command, &eyes, &last](Status why) {
    eyes.lost(why.message);
    // Said once, not at each try; a supervisor says itself that the coordinator died.
    if (command.supervised || why == last) return;
    last = why;
    if (is_client_port(*parse_endpoint(command.join))) {
      return say(command.join +
                 " is a coordinator's port for clients; --join takes the one of its "
                 "mesh, by default the next; trying again");
    }
    say("no coordinator at " + command.join + ": " + why.message + "; trying again");
  };
  events.rejected = [end](Status why) { end(with_options(std::move(why))); };
  return events;
}

// Where other workers reach --kv, if not at its own address. An own port, where it says 0.
std::optional<Endpoint> kv_advertise(const WorkerCommand& command) {
  if (!command.kv_advertise.empty()) return *parse_endpoint(command.kv_advertise);
  const std::string listens = parse_endpoint(command.kv)->host;
  if (!wildcard(listens)) return std::nullopt;
  constexpr uint16_t kAny = 1;  // the port is only known once it listens
  return Endpoint{advertised({listens, kAny}, "", {parse_endpoint(command.join)->host}).host, 0};
}

// What keeps others from sending KV here would only show when they try, and on their side.
void warn_of_kv(const WorkerCommand& command) {
  if (command.role == "prefill") return;
  const std::string join = parse_endpoint(command.join)->host;
  if (!command.kv_advertise.empty()) {
    if (!leaves_from(parse_endpoint(command.kv_advertise)->host).empty()) return;
    return say("WARNING: --kv-advertise " + command.kv_advertise +
               ": no such host, or no way to it from here; workers there will not find this one");
  }
  if (loopback(parse_endpoint(command.kv)->host) && !loopback(join)) {
    say("WARNING: --kv " + command.kv + " is on loopback and the cluster at " + join +
        ": workers on other machines cannot send KV here; give --kv HOST:PORT");
  }
}

int serve_until_end(const WorkerCommand& command, const LoadedModel& model,
                    const TransportOptions::Choice& transport, WorkerStatusPort& eyes) {
  AsioRuntime runtime(1);
  AsioNetwork network(runtime);
  OsRandom random;
  const auto strand = runtime.make_strand();
  End ended;
  const auto end = [&ended, over = std::make_shared<bool>(false)](Status why) {
    if (!std::exchange(*over, true)) ended.set_value(std::move(why));
  };
  worker::WorkerOptions options = model.worker_options(kRoles.at(command.role), command.name);
  options.kv = *parse_endpoint(command.kv);
  options.metrics = advertised(eyes.endpoint(), command.process.metrics_advertise,
                               {parse_endpoint(command.join)->host});
  options.probes = eyes.probes();
  options.kv_advertise = kv_advertise(command);
  options.lanes = transport.maker();
  options.prefix_cache = command.prefix_cache;
  options.drain = command.process.drain();
  Status last, why;
  {
    const auto node = std::make_shared<worker::WorkerNode>(
        strand, network, random, *model.engine, options, model.tokenizer,
        *parse_endpoint(command.join), report(command, model, eyes, last, end));
    node->start([end](Status started) {
      if (!started.ok()) end(std::move(started));
    });
    // First what runs may end, at a second signal nothing is waited for.
    runtime.on_signals(strand, ending_signals(),
                       [weak = std::weak_ptr(node), &command, &eyes, end, grace = options.drain,
                        asked = std::make_shared<bool>(false)](int) {
                         const auto alive = weak.lock();
                         if (!alive || std::exchange(*asked, true)) return end({});
                         eyes.draining();
                         if (!command.supervised)
                           say("leaving: no new work, what runs gets " +
                               std::to_string(command.process.drain_timeout) + " s");
                         alive->drain(grace, [end] { end({}); });
                       });
    why = ended.get_future().get();
  }
  runtime.stop();  // while what its last tasks refer to is still there
  return why.ok() ? kExitOk : fail(why);
}

// Names are unique in a cluster: role, host, and something that tells two of a host apart.
std::string default_name(const std::string& role) {
  char host[65] = {};
  if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
    std::snprintf(host, sizeof host, "host");
  char suffix[8];
  std::snprintf(suffix, sizeof suffix, "%04x", static_cast<unsigned>(OsRandom().next() & 0xffff));
  return role + "-" + host + "-" + suffix;
}

int work(WorkerCommand command) {
  write_aside();
  if (command.name.empty()) command.name = default_name(command.role);
  const Status open =
      check_exposure(*parse_endpoint(command.kv), "the KV channel", command.process.insecure_mesh);
  if (!open.ok()) return fail_usage(open.message);
  if (Status shown = command.process.check_metrics_exposure(); !shown.ok())
    return fail_usage(shown.message);
  if (!command.kv_advertise.empty() && command.role == "prefill")
    return fail_usage("--kv-advertise is for workers that take KV, not for --role prefill");
  const auto transport = command.transport.choose(command.engine.device);
  if (!transport) return fail(transport.error());
  // A supervisor says it once for all.
  if (!command.supervised && !transport->sentence.empty()) say(transport->sentence);
  warn_of_kv(command);
  // Open before the model is loaded: whoever looks sees that it lives and how far it is.
  const auto eyes = WorkerStatusPort::open(command.process.metrics, command.role);
  if (!eyes) return fail(eyes.error());
  std::this_thread::sleep_for(std::chrono::milliseconds(command.load_delay_ms));
  auto model = load_model(command.model, command.engine, kContexts, command.supervised,
                          [&eyes](double share) { (*eyes)->loading(share); });
  if (!model) return fail(model.error());
  (*eyes)->loaded(model->card(), model->engine->blocks());
  return serve_until_end(command, *model, *transport, **eyes);
}

// What the coordinator would refuse only after the model is loaded.
CLI::Validator worker_name() {
  return CLI::Validator(
      [](std::string& text) {
        if (text.size() > coordinator::kWorkerTextMax)
          return "has " + std::to_string(text.size()) + " bytes, the limit is " +
                 std::to_string(coordinator::kWorkerTextMax);
        if (coordinator::first_invalid_utf8(text) != std::string_view::npos)
          return std::string("is not UTF-8");
        for (const char c : text)
          if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            return std::string("has control characters");
        return std::string();
      },
      "", "name");
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
  command
      ->add_option("--kv-advertise", options->kv_advertise,
                   "HOST:PORT where other workers reach --kv, if not there (NAT, proxy)")
      ->check(endpoint())
      ->check(advertised_address());
  add_prefix_cache(*command, options->prefix_cache);
  options->process.add_to(*command, kWorkerMetrics, "port 0: any");
  command->add_option("--test-load-delay-ms", options->load_delay_ms)
      ->check(whole(0, 600'000))
      ->group("");
  command
      ->add_option("--name", options->name,
                   "Name for people, unique in the cluster; default: role, host, four digits")
      ->check(worker_name());
  command->add_flag("--supervised", options->supervised)->group("");
  options->engine.add_to(*command);
  options->transport.add_to(*command);
  command->callback([options, &action] { action = [options] { return work(*options); }; });
}

}  // namespace headrace::cli
