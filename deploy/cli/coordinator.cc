#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "coordinator/coordinator_node.h"
#include "coordinator/gateway.h"
#include "deploy/cli/advertise.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/operator_log.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "deploy/cli/process_options.h"
#include "deploy/cli/status_port.h"
#include "protocol/asio_runtime.h"

namespace headrace::cli {

namespace {

struct CoordinatorCommand {
  std::string listen = "127.0.0.1:7400";
  std::string mesh = "127.0.0.1:7401";
  std::string pd = "auto";
  ProcessOptions process;
  bool supervised = false;
};

constexpr Duration kShortGrace = 1s;   // of running answers, after a second signal
constexpr Duration kDrainMargin = 5s;  // for the Dispatcher to say that all have ended
constexpr Duration kFlushWithin = 2s;  // for what has ended to reach its clients

// What the main thread waits for: signals, and the end of the drain.
class Leaving final : public coordinator::ReplyPort<bool> {
 public:
  void signal() {
    std::lock_guard lock(mutex_);
    ++signals_;
    changed_.notify_all();
  }
  void on(bool) override {
    std::lock_guard lock(mutex_);
    drained_ = true;
    changed_.notify_all();
  }
  void wait_signal() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return signals_ > 0; });
  }
  // True: nothing runs any more. False: another signal came, or the time is over.
  bool wait_drained(Duration limit, int signals) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return drained_ || signals_ > signals; });
    return drained_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int signals_ = 0;
  bool drained_ = false;
};

// No new requests; those that run get their time, at a second signal a short one. Each stream ends
// with a record of its own.
void drain(const Ref<coordinator::Dispatcher>& dispatcher, std::shared_ptr<Strand> strand,
           const std::shared_ptr<Leaving>& leaving, Duration grace) {
  const Ref<coordinator::ReplyPort<bool>> reply(std::move(strand), leaving);
  dispatcher.tell(coordinator::BeginDrain{grace, reply});
  if (leaving->wait_drained(grace + kDrainMargin, 1)) return;
  dispatcher.tell(coordinator::BeginDrain{kShortGrace, reply});
  leaving->wait_drained(kShortGrace + kDrainMargin, 2);
}

// Grows from one life of a coordinator to the next, also on another machine with a sane clock.
Term fresh_term() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Term{
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count())};
}

int coordinate(const CoordinatorCommand& command) {
  write_aside();
  const Endpoint listen = *parse_endpoint(command.listen), mesh = *parse_endpoint(command.mesh);
  for (const auto& [at, what] : {std::pair(listen, "the client port"), {mesh, "the mesh"}}) {
    const Status open = check_exposure(at, what, command.process.insecure_mesh);
    if (!open.ok()) return fail_usage(open.message);
  }
  if (Status open = command.process.check_metrics_exposure(); !open.ok())
    return fail_usage(open.message);
  const auto eyes =
      CoordinatorStatusPort::open(command.process.metrics, command.process.metrics_given());
  if (!eyes) return fail(eyes.error());
  OsRandom random;
  AsioRuntime runtime(2);  // its tasks use `random` until it has ended
  AsioNetwork network(runtime);
  const auto leaving = std::make_shared<Leaving>();
  const auto signals = runtime.make_strand();
  runtime.on_signals(signals, ending_signals(), [leaving](int) { leaving->signal(); });
  coordinator::CoordinatorOptions options;
  options.mesh = mesh;
  options.text_strand = runtime.make_strand();  // a long prompt holds up no worker and no client
  options.dispatcher.term = fresh_term();
  options.dispatcher.waits_for_first = false;
  options.dispatcher.pd = *coordinator::parse_pd_mode(command.pd);
  const Endpoint shown =
      advertised((*eyes)->endpoint(), command.process.metrics_advertise, {mesh.host, listen.host});
  options.dispatcher.metrics = shown;
  options.dispatcher.probes = (*eyes)->probes();
  options.dispatcher.log = std::make_shared<OperatorLog>(command.supervised, say);
  auto node = coordinator::CoordinatorNode::start(runtime.make_strand(), network, random, options);
  if (!node) return fail(node.error());
  auto gateway = coordinator::Gateway::start({listen, kFlushWithin}, (*node)->dispatcher(), random);
  if (!gateway) return fail(gateway.error());

  const std::string clients = to_string((*gateway)->endpoint());
  const std::string workers = to_string((*node)->mesh());
  const std::string metrics = shown.port == 0 ? "" : to_string(shown);
  if (command.process.json) {
    print_json(
        {{"event", "listening"}, {"clients", clients}, {"mesh", workers}, {"metrics", metrics}});
  } else if (command.supervised) {
    mark("listening");
  } else {
    say("coordinator: clients " + clients + ", mesh " + workers +
        (metrics.empty() ? "" : ", metrics " + metrics));
  }
  leaving->wait_signal();
  const auto grace = command.process.drain();
  if (command.process.json) {
    print_json({{"event", "draining"}, {"seconds", grace.count()}});
  } else {
    say("leaving: no new requests, running answers get " + std::to_string(grace.count()) + " s");
  }
  drain((*node)->dispatcher(), signals, leaving, grace);
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
  options->process.add_to(*command, kCoordinatorMetrics, "if the default is taken: any");
  command->add_flag("--supervised", options->supervised)->group("");
  command->callback([options, &action] { action = [options] { return coordinate(*options); }; });
}

}  // namespace headrace::cli
