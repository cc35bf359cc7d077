#include <signal.h>

#include <future>
#include <memory>

#include "coordinator/coordinator_node.h"
#include "deploy/cli/loaded_model.h"
#include "deploy/cli/output.h"
#include "deploy/cli/run.h"
#include "protocol/asio_runtime.h"
#include "protocol/local_network.h"
#include "worker/worker_node.h"

namespace headrace::cli {

namespace {

using coordinator::Chunk;
using coordinator::Ended;

// The one client of the one request: prints what comes, keeps the end.
class Reader final : public coordinator::ClientPort {
 public:
  Reader(AnswerPrinter& printer, RequestId request) : printer_(printer), request_(request) {}

  void set_dispatcher(Ref<coordinator::Dispatcher> dispatcher) { dispatcher_ = dispatcher; }
  void on(Chunk chunk) override {
    if (!printer_.on(chunk)) return abandon();
    dispatcher_.tell(coordinator::Acknowledge{
        request_, chunk.position + static_cast<uint32_t>(chunk.ids.size())});
  }
  void on(Ended ended) override { end_.set_value(std::move(ended)); }
  std::future<Ended> end() { return end_.get_future(); }
  void abandon() { dispatcher_.tell(coordinator::Abandon{request_}); }

 private:
  AnswerPrinter& printer_;
  RequestId request_;
  Ref<coordinator::Dispatcher> dispatcher_;
  std::promise<Ended> end_;
};

coordinator::Submit make_submit(const AskOptions& ask, coordinator::Prompt prompt,
                                RequestId request, Ref<coordinator::ClientPort> client) {
  coordinator::Submit submit;
  submit.request = request;
  submit.prompt = std::move(prompt);
  submit.special = ask.special;
  submit.seed = ask.seed;
  submit.sampling = ask.sampling();
  submit.max_tokens = ask.max_tokens;
  submit.kv_digest = ask.kv_digest;
  submit.stop = ask.stop;
  submit.include_stop = ask.include_stop;
  submit.stop_tokens = ask.stop_tokens;
  submit.ignore_eos = ask.ignore_eos;
  submit.cache_salt = ask.cache_salt;
  submit.client = std::move(client);
  return submit;
}

}  // namespace

int run_local(const RunCommand& command, coordinator::Prompt prompt) {
  auto model = load_model(command.model, command.engine, 1, false);
  if (!model) return fail(model.error());
  const RequestId request = command.request();
  AnswerPrinter printer(command.json, request);
  Ended ended;
  Asked asked;
  {
    LocalNetwork network;
    OsRandom random;
    AsioRuntime runtime(2);  // last: its tasks refer to the others until it has ended
    auto coordinator =
        coordinator::CoordinatorNode::start(runtime.make_strand(), network, random, {});
    if (!coordinator) return fail(coordinator.error());
    const auto& dispatcher = (*coordinator)->dispatcher();
    worker::WorkerNode node(runtime.make_strand(), network, random, *model->engine,
                            model->worker_options(Role::kBoth, "here"), model->tokenizer,
                            (*coordinator)->mesh(), {});
    node.start();

    const auto strand = runtime.make_strand();
    const auto reader = std::make_shared<Reader>(printer, request);
    reader->set_dispatcher(dispatcher);
    auto end = reader->end();
    asked = command.asked(prompt);
    dispatcher.tell(make_submit(command.ask, std::move(prompt), request,
                                Ref<coordinator::ClientPort>(strand, reader)));
    // Only now: a request that is not there yet cannot be given up.
    runtime.on_signals(strand, ending_signals(), [reader](int) { reader->abandon(); });
    const OutputWatch watch([reader] { reader->abandon(); });
    ended = end.get();
  }
  if (ended.finish == Finish::kCancelled) ended.status = error(Errc::kCancelled, "cancelled");
  asked.can_chat = !model->file->tokenizer().chat_template.empty();
  return printer.finish(ended, model->card().cost, model->limits, asked);
}

}  // namespace headrace::cli
