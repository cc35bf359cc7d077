#include <signal.h>

#include <atomic>
#include <memory>

#include "deploy/cli/machine.h"
#include "deploy/cli/output.h"
#include "deploy/cli/remote.h"
#include "deploy/cli/run.h"
#include "protocol/asio_runtime.h"
#include "protocol/client.h"

namespace headrace::cli {

namespace {

client::GenerateRequest make_request(const AskOptions& ask, const RequestId& id,
                                     coordinator::Prompt prompt) {
  client::GenerateRequest request;
  if (auto* messages = std::get_if<std::vector<coordinator::ChatMessage>>(&prompt)) {
    std::vector<client::ChatMessage> chat;
    for (auto& m : *messages) chat.push_back({std::move(m.role), std::move(m.content)});
    request.prompt = std::move(chat);
  } else if (auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
    request.prompt = std::move(*ids);
  } else {
    request.prompt = std::move(std::get<std::string>(prompt));
  }
  request.special = ask.special;
  request.sampling = ask.sampling();
  request.seed = ask.seed;
  request.max_tokens = ask.max_tokens;
  request.kv_digest = ask.kv_digest;
  request.request_id = id;
  request.resumable = !ask.request_id.empty();
  request.stop = ask.stop;
  request.include_stop = ask.include_stop;
  request.stop_tokens = ask.stop_tokens;
  request.ignore_eos = ask.ignore_eos;
  request.cache_salt = ask.cache_salt;
  return request;
}

coordinator::Ended make_ended(const Result<client::Answer>& answer) {
  coordinator::Ended ended;
  if (!answer) {
    const bool cancelled = answer.error().code == Errc::kCancelled;
    ended.finish = cancelled ? Finish::kCancelled : Finish::kError;
    ended.status = answer.error();
    return ended;
  }
  ended.finish = answer->finish;
  ended.text = answer->tail;
  ended.usage = {answer->prompt_tokens, answer->completion_tokens, answer->cached_tokens};
  ended.timing = {answer->queue, answer->first_token, answer->total};
  ended.remote_prefill = answer->remote_prefill;
  ended.kv = answer->kv;
  return ended;
}

}  // namespace

int run_remote(const RunCommand& command, coordinator::Prompt prompt) {
  const auto at = parse_endpoint(command.connect);
  if (!at) return fail(at.error());
  auto connection = connect_client(*at);
  if (!connection) return fail(connection.error());
  Asked asked = command.asked(prompt);
  const RequestId id = command.request();
  AnswerPrinter printer(command.json, id);
  Result<client::Answer> answer = error(Errc::kCancelled, "cancelled");
  {
    std::atomic<client::Generation*> running = nullptr;
    std::atomic<bool> unread = false;  // what comes is written nowhere
    const auto stop = [&running, &unread] {
      unread = true;
      if (auto* const generation = running.load()) generation->cancel();
    };
    const auto print = [&printer, &stop](const client::Chunk& chunk) {
      if (!printer.on({chunk.position, chunk.ids, chunk.text, chunk.logprobs})) stop();
    };
    const auto generation =
        command.resume.empty()
            ? (*connection)->generate(make_request(command.ask, id, std::move(prompt)), print)
            : (*connection)->resume(id, command.from, print);
    AsioRuntime runtime(1);
    runtime.on_signals(runtime.make_strand(), ending_signals(),
                       [&generation](int) { generation->cancel(); });
    const OutputWatch watch(stop);
    running = generation.get();
    if (unread) generation->cancel();
    answer = generation->wait();
  }
  ModelCost cost;
  MachineLimits limits;
  if (const auto status =
          answer ? (*connection)->status() : Result<client::ClusterStatus>(answer.error())) {
    if (!status->models.empty()) {
      cost.weight_bytes = status->models[0].weight_bytes;
      asked.can_chat = status->models[0].chat;
    }
    limits = limits_of(*status, *at, state_folder(command.engine.state_dir));
  }
  return printer.finish(make_ended(answer), cost, limits, asked);
}

}  // namespace headrace::cli
