#include "protocol/client.h"

#include <utility>

#include "protocol/client_loop.h"
#include "protocol/client_words.h"
#include "protocol/random.h"

namespace headrace::client {
namespace {

constexpr Duration kDefaultDeadline = 10min;  // the coordinator's
constexpr Duration kDeadlineMargin = 10s;

std::unique_ptr<Generation> refused(Status why) {
  auto state = std::make_shared<Generation::State>();
  state->end.set(std::move(why));
  state->cancel = [] {};
  return std::make_unique<Generation>(std::move(state));
}

}  // namespace

Generation::Generation(std::shared_ptr<State> state) : state_(std::move(state)) {}
Generation::~Generation() { cancel(); }
Result<Answer> Generation::wait() { return state_->end.take(); }
void Generation::cancel() { state_->cancel(); }
RequestId Generation::request_id() const { return state_->request_id; }

Result<std::unique_ptr<Client>> Client::connect(const Endpoint& to, Duration deadline) {
  std::unique_ptr<Client> client(new Client(std::make_unique<Loop>(to)));
  if (Status status = client->loop_->connect(deadline); !status.ok()) return status;
  return client;
}

Client::Client(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Client::~Client() = default;

Result<ServerInfo> Client::hello(const std::string& name, Duration deadline) {
  return loop_->call<ServerInfo>(deadline, [this, name] {
    auto call = loop_->main().helloRequest();
    call.setClient(name);
    return call.send().then([](auto&& r) -> Result<ServerInfo> {
      return ServerInfo{headrace::to_string(r.getServer().getVersion()),
                        r.getServer().getProtocol()};
    });
  });
}

Result<std::vector<Model>> Client::models(Duration deadline) {
  return loop_->call<std::vector<Model>>(deadline, [this] {
    return loop_->main().modelsRequest().send().then(
        [](auto&& r) -> Result<std::vector<Model>> { return read_models(r.getModels()); });
  });
}

Result<ClusterStatus> Client::status(Duration deadline) {
  return loop_->call<ClusterStatus>(deadline, [this] {
    return loop_->main().statusRequest().send().then(
        [](auto&& r) -> Result<ClusterStatus> { return read_status(r.getStatus()); });
  });
}

Result<std::vector<Token>> Client::tokenize(const Prompt& prompt, bool special, Duration deadline) {
  using R = Result<std::vector<Token>>;
  if (Status status = check_bytes(payload_bytes(prompt)); !status.ok()) return status;
  return loop_->call<std::vector<Token>>(deadline, [this, prompt, special]() -> kj::Promise<R> {
    auto call = loop_->main().tokenizeRequest();
    write(call.initPrompt(), prompt, special);
    if (Status status = check_size(call); !status.ok()) return R(std::move(status));
    return call.send().then([](auto&& r) -> R { return read_tokens(r.getResult()); });
  });
}

Result<std::string> Client::detokenize(const std::vector<Token>& ids, Duration deadline) {
  using R = Result<std::string>;
  if (Status status = check_bytes(ids.size() * sizeof(Token)); !status.ok()) return status;
  return loop_->call<std::string>(deadline, [this, ids]() -> kj::Promise<R> {
    auto call = loop_->main().detokenizeRequest();
    auto list = call.initIds(static_cast<uint32_t>(ids.size()));
    for (uint32_t i = 0; i < list.size(); ++i) list.set(i, ids[i]);
    if (Status status = check_size(call); !status.ok()) return R(std::move(status));
    return call.send().then([](auto&& r) -> R { return read_text(r.getResult()); });
  });
}

Result<bool> Client::cancel(const RequestId& request, Duration deadline) {
  return loop_->call<bool>(deadline, [this, request] {
    auto call = loop_->main().cancelRequest();
    write(call.initRequest(), request);
    return call.send().then([](auto&& r) -> Result<bool> { return r.getFound(); });
  });
}

std::unique_ptr<Generation> Client::generate(GenerateRequest request,
                                             std::function<void(const Chunk&)> on_chunk) {
  if (Status status = check_bytes(payload_bytes(request)); !status.ok())
    return refused(std::move(status));
  if (request.resumable && request.request_id == RequestId{}) {
    OsRandom random;
    request.request_id = random.mint<RequestId>();
  }
  auto state = std::make_shared<Generation::State>();
  state->on_chunk = std::move(on_chunk);
  state->request_id = request.request_id;
  Question question;
  question.resumable = request.resumable;
  question.limit = request.deadline.value_or(kDefaultDeadline) + kDeadlineMargin;
  question.request = std::move(request);
  return std::make_unique<Generation>(loop_->begin(std::move(question), std::move(state)));
}

std::unique_ptr<Generation> Client::resume(const RequestId& request, uint32_t next,
                                           std::function<void(const Chunk&)> on_chunk) {
  auto state = std::make_shared<Generation::State>();
  state->on_chunk = std::move(on_chunk);
  state->request_id = request;
  state->next = next;
  Question question;
  question.limit = kDefaultDeadline + kDeadlineMargin;
  return std::make_unique<Generation>(loop_->begin(std::move(question), std::move(state)));
}

}  // namespace headrace::client
