#include "deploy/cli/status_port.h"

#include "protocol/slowdown.h"

namespace headrace::cli {

namespace {

std::string version_json() { return "{\"version\":" + json_string(HEADRACE_VERSION) + "}"; }

StatusPages common_pages(Metrics& metrics, const char* component) {
  add_process_metrics(metrics);
  add_build_info(metrics, {{"component", component}});
  StatusPages pages;
  pages.metrics = [&metrics] { return metrics.text(); };
  pages.version_json = version_json();
  return pages;
}

}  // namespace

CLI::Validator metrics_address() {
  return CLI::Validator(
      [](std::string& text) {
        if (text == kNoMetrics) return std::string();
        const auto at = parse_endpoint(text);
        return at ? std::string() : at.error().message + ", or none";
      },
      "", "metrics");
}

Result<std::unique_ptr<CoordinatorStatusPort>> CoordinatorStatusPort::open(const std::string& at,
                                                                           bool given) {
  auto port = std::make_unique<CoordinatorStatusPort>();
  if (at == kNoMetrics) return port;
  auto probes = std::make_shared<coordinator::PrometheusProbes>(port->metrics_, port->board_);
  port->probes_ = probes;
  StatusPages pages = common_pages(port->metrics_, "coordinator");
  pages.state = [&board = port->board_] {
    ServiceState state = board.get();
    if (board.age() > kSilent * kSlowdown) {
      state.ready = false;
      state.why = "the dispatcher has said nothing for a while";
    }
    return state;
  };
  pages.json["/sd/prometheus"] = [probes] { return probes->targets(); };
  const Endpoint endpoint = *parse_endpoint(at);
  auto server = StatusServer::start(endpoint, pages);
  if (!server && !given) server = StatusServer::start({endpoint.host, 0}, pages);
  if (!server) return server.error();
  port->server_ = std::move(*server);
  return port;
}

Endpoint CoordinatorStatusPort::endpoint() const {
  return server_ ? server_->endpoint() : Endpoint{};
}

Result<std::unique_ptr<WorkerStatusPort>> WorkerStatusPort::open(const std::string& at,
                                                                 const std::string& role) {
  std::unique_ptr<WorkerStatusPort> port(new WorkerStatusPort(role));
  if (at == kNoMetrics) return port;
  port->probes_ = std::make_shared<worker::PrometheusProbes>(port->metrics_);
  port->board_.set({false, "the model is being loaded", false, 0});
  StatusPages pages = common_pages(port->metrics_, "worker");
  pages.state = [&board = port->board_] { return board.get(); };
  auto server = StatusServer::start(*parse_endpoint(at), std::move(pages));
  if (!server) return server.error();
  port->server_ = std::move(*server);
  return port;
}

Endpoint WorkerStatusPort::endpoint() const { return server_ ? server_->endpoint() : Endpoint{}; }

void WorkerStatusPort::loading(double share) {
  board_.set_loaded(share);
  if (probes_) probes_->loading(share);
}

void WorkerStatusPort::loaded(const ModelCard& card, uint32_t blocks) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
  tell(false, "it has not joined a coordinator yet");
  if (probes_) probes_->model(card, blocks, took.count());
}

void WorkerStatusPort::tell(bool ready, std::string why) {
  const bool leaving = draining_;
  board_.set({ready && !leaving, leaving ? "draining" : std::move(why), leaving, 1});
}

void WorkerStatusPort::joined() { tell(true, ""); }
void WorkerStatusPort::lost(const std::string& why) { tell(false, "no coordinator: " + why); }
void WorkerStatusPort::draining() {
  draining_ = true;
  tell(false, "");
}

}  // namespace headrace::cli
