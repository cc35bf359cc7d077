#include "coordinator/gateway_words.h"

#include <cmath>
#include <utility>

namespace headrace::coordinator {
namespace {

constexpr uint64_t kDeadlineMsMax = 24ull * 3600 * 1000;

uint64_t nanoseconds(double seconds) {
  return seconds > 0 ? static_cast<uint64_t>(seconds * 1e9) : 0;
}

void write_model(api::Model::Builder to, const ModelCard& card, bool chat) {
  to.setName(card.name);
  to.setArchitecture(card.architecture);
  write(to.initDigest(), card.weights);
  to.setContext(card.context);
  to.setVocabulary(card.vocab);
  to.setBlockTokens(card.block_tokens);
  to.setNumerics(card.numerics);
  to.setChat(chat);
  to.setLayers(card.layers);
  to.setWeightBytes(card.cost.weight_bytes);
}

void write_worker(api::Worker::Builder to, const WorkerStatus& worker) {
  to.setId(raw(worker.id));
  to.setName(worker.name);
  to.setRole(to_api(worker.role));
  to.setState(worker.state);
  to.setPid(worker.pid);
  to.setDevice(worker.device);
  write(to.initKv(), worker.kv);
  write(to.initMetrics(), worker.metrics);
  write(to.initBlocks(), worker.blocks);
  to.setInFlight(worker.in_flight);
  to.setRunning(worker.running);
  to.setSteps(worker.steps);
}

void write_totals(api::Totals::Builder to, const Totals& t) {
  to.setSubmitted(t.submitted);
  to.setRefused(t.refused);
  to.setStopped(t.stopped);
  to.setCancelled(t.cancelled);
  to.setFailed(t.failed);
  to.setTokens(t.tokens);
  to.setAttempts(t.attempts);
  to.setAttemptsFailed(t.attempts_failed);
  to.setRefusals(t.refusals);
  to.setRemotePrefills(t.remote_prefills);
  to.setWorkersLost(t.workers_lost);
  to.setStale(t.stale);
  to.setRepeats(t.repeats);
  to.setGaps(t.gaps);
  to.setConflicts(t.conflicts);
}

}  // namespace

Result<Prompt> read_prompt(api::Prompt::Reader from) {
  if (from.isText()) return Prompt(to_string(from.getText()));
  if (from.isTokens()) {
    std::vector<Token> ids;
    ids.reserve(from.getTokens().getIds().size());
    for (const Token id : from.getTokens().getIds()) ids.push_back(id);
    return Prompt(std::move(ids));
  }
  if (from.isChat()) {
    std::vector<ChatMessage> messages;
    for (const auto m : from.getChat().getMessages())
      messages.push_back({to_string(m.getRole()), to_string(m.getContent())});
    return Prompt(std::move(messages));
  }
  return error(Errc::kInvalid, "prompt: give text, tokens or chat");
}

Result<Submit> read_request(api::GenerateRequest::Reader from) {
  Result<Prompt> prompt = read_prompt(from.getPrompt());
  if (!prompt) return prompt.error();
  Submit submit;
  submit.prompt = std::move(*prompt);
  submit.special = from.getPrompt().getSpecial();
  const auto sampling = from.getSampling();
  submit.sampling.temperature = sampling.getTemperature();
  submit.sampling.top_k = sampling.getTopK();
  submit.sampling.top_p = sampling.getTopP();
  submit.sampling.min_p = sampling.getMinP();
  if (sampling.getHasSeed()) submit.seed = sampling.getSeed();
  if (from.getHasMaxTokens()) submit.max_tokens = from.getMaxTokens();
  if (from.getDeadlineMs() > kDeadlineMsMax)
    return error(Errc::kInvalid, "deadline is " + std::to_string(from.getDeadlineMs()) +
                                     " ms, the limit is " + std::to_string(kDeadlineMsMax));
  if (from.getDeadlineMs() > 0)
    submit.deadline = std::chrono::milliseconds(static_cast<int64_t>(from.getDeadlineMs()));
  submit.kv_digest = from.getKvDigest();
  return submit;
}

void write(api::Chunk::Builder to, const Chunk& chunk) {
  to.setPosition(chunk.position);
  auto ids = to.initIds(static_cast<uint32_t>(chunk.ids.size()));
  for (uint32_t i = 0; i < ids.size(); ++i) ids.set(i, chunk.ids[i]);
  to.setText(capnp::Text::Reader(chunk.text.c_str(), chunk.text.size()));
}

void write(api::Answer::Builder to, const Ended& ended) {
  to.setFinish(to_api(ended.finish));
  to.setText(capnp::Text::Reader(ended.text.c_str(), ended.text.size()));
  auto usage = to.initUsage();
  usage.setPromptTokens(ended.usage.prompt_tokens);
  usage.setCompletionTokens(ended.usage.completion_tokens);
  usage.setCachedTokens(ended.usage.cached_tokens);
  to.setQueueNs(nanoseconds(ended.timing.queue));
  to.setFirstTokenNs(nanoseconds(ended.timing.first_token));
  to.setTotalNs(nanoseconds(ended.timing.total));
  to.setRemotePrefill(ended.remote_prefill);
  write(to.initKv(), ended.kv);
}

void write_models(capnp::List<api::Model>::Builder to, const ClusterStatus& status) {
  if (status.model) write_model(to[0], *status.model, status.chat);
}

void write(api::Status::Builder to, const ClusterStatus& status) {
  to.setReady(status.ready);
  to.setNotReady(status.not_ready);
  write_models(to.initModels(status.model ? 1 : 0), status);
  auto workers = to.initWorkers(static_cast<uint32_t>(status.workers.size()));
  for (uint32_t i = 0; i < workers.size(); ++i) write_worker(workers[i], status.workers[i]);
  to.setRunning(status.running);
  to.setWaiting(status.waiting);
  to.setDraining(status.draining);
  write_totals(to.initTotals(), status.totals);
}

}  // namespace headrace::coordinator
