#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "coordinator/coordinator_node.h"
#include "coordinator/gateway.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "deploy/cli/status_port.h"
#include "protocol/asio_runtime.h"

namespace headrace::cli {

namespace {

struct CoordinatorCommand {
  std::string listen = "127.0.0.1:7400";
  std::string mesh = "127.0.0.1:7401";
  std::string pd = "auto";
  std::string metrics = kCoordinatorMetrics;
  bool metrics_given = false;
  int drain_timeout = kDrainSeconds;
  bool insecure_mesh = false;
  bool supervised = false;
  bool json = false;
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
  const Endpoint listen = *parse_endpoint(command.listen), mesh = *parse_endpoint(command.mesh);
  for (const auto& [at, what] : {std::pair(listen, "the client port"), {mesh, "the mesh"}}) {
    const Status open = check_exposure(at, what, command.insecure_mesh);
    if (!open.ok()) return fail(open);
  }
  if (command.metrics != kNoMetrics) {
    const Status open =
        check_exposure(*parse_endpoint(command.metrics), "the metrics port", command.insecure_mesh);
    if (!open.ok()) return fail(open);
  }
  const auto eyes = CoordinatorStatusPort::open(command.metrics, command.metrics_given);
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
  options.dispatcher.metrics = (*eyes)->endpoint();
  options.dispatcher.probes = (*eyes)->probes();
  auto node = coordinator::CoordinatorNode::start(runtime.make_strand(), network, random, options);
  if (!node) return fail(node.error());
  auto gateway = coordinator::Gateway::start({listen, kFlushWithin}, (*node)->dispatcher(), random);
  if (!gateway) return fail(gateway.error());

  const std::string clients = to_string((*gateway)->endpoint());
  const std::string workers = to_string((*node)->mesh());
  const Endpoint seen = (*eyes)->endpoint();
  const std::string metrics = seen.port == 0 ? "" : to_string(seen);
  if (command.json) {
    print_json(
        {{"event", "listening"}, {"clients", clients}, {"mesh", workers}, {"metrics", metrics}});
  } else if (command.supervised) {
    mark("listening");
  } else {
    say("coordinator: clients " + clients + ", mesh " + workers +
        (metrics.empty() ? "" : ", metrics " + metrics));
  }
  leaving->wait_signal();
  const Duration grace = std::chrono::seconds(command.drain_timeout);
  if (command.json) {
    print_json({{"event", "draining"}, {"seconds", command.drain_timeout}});
  } else {
    say("leaving: no new requests, running answers get " + std::to_string(command.drain_timeout) +
        " s");
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
  command->add_flag("--supervised", options->supervised)->group("");
  command->callback([options, metrics, &action] {
    options->metrics_given = metrics->count() > 0;
    action = [options] { return coordinate(*options); };
  });
}

}  // namespace headrace::cli
