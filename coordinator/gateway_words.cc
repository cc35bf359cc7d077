#include "coordinator/gateway_words.h"

#include <utility>

#include "coordinator/limits.h"
#include "coordinator/utf8.h"
#include "protocol/limits.h"

namespace headrace::coordinator {
namespace {

constexpr uint64_t kDeadlineMsMax = 24ull * 3600 * 1000;

Status over(const std::string& field, uint64_t has, const char* of, uint64_t limit) {
  return error(Errc::kInvalid, field + " has " + std::to_string(has) + " " + of +
                                   ", the limit is " + std::to_string(limit));
}

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
  to.setKvLayout(card.kv_layout);
  to.setBlockBytes(card.block_bytes);
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
  write(to.initPrefill(), worker.prefill);
  write(to.initDecode(), worker.decode);
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
  to.setResumed(t.resumed);
  to.setStopMatched(t.stop_matched);
  to.setToldAgain(t.told_again);
  to.setClosingLost(t.closing_lost);
  to.setPrefixGaps(t.prefix_gaps);
  to.setPoisoned(t.poisoned);
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

namespace {

Status read_sampling(api::Sampling::Reader from, Submit& submit) {
  Sampling& to = submit.sampling;
  to.temperature = from.getTemperature();
  to.top_k = from.getTopK();
  to.top_p = from.getTopP();
  to.min_p = from.getMinP();
  if (from.getHasSeed()) submit.seed = from.getSeed();
  to.presence_penalty = from.getPresencePenalty();
  to.frequency_penalty = from.getFrequencyPenalty();
  to.repetition_penalty = from.getRepetitionPenalty();
  const auto bias = from.getLogitBias();
  if (bias.size() > limits::kLogitBias)
    return over("logit_bias", bias.size(), "entries", limits::kLogitBias);
  for (const auto one : bias) to.bias.push_back({one.getId(), one.getBias()});
  to.logprobs = from.getLogprobs();
  return {};
}

Status read_stops(api::GenerateRequest::Reader from, Submit& submit) {
  const auto stop = from.getStop();
  if (stop.size() > kStopsMax) return over("stop", stop.size(), "texts", kStopsMax);
  for (uint32_t i = 0; i < stop.size(); ++i) {
    const std::string which = "stop[" + std::to_string(i) + "]";
    if (stop[i].size() > kStopBytesMax) return over(which, stop[i].size(), "bytes", kStopBytesMax);
    if (stop[i].size() == 0) return error(Errc::kInvalid, which + " is empty");
    std::string text = headrace::to_string(stop[i]);
    if (first_invalid_utf8(text) != text.npos)
      return error(Errc::kInvalid, which + " is not valid UTF-8");
    submit.stop.push_back(std::move(text));
  }
  const auto tokens = from.getStopTokens();
  if (tokens.size() > kStopTokensMax)
    return over("stop_tokens", tokens.size(), "ids", kStopTokensMax);
  for (const Token id : tokens) submit.stop_tokens.push_back(id);
  submit.include_stop = from.getIncludeStop();
  submit.ignore_eos = from.getIgnoreEos();
  return {};
}

Status read_deadline(uint64_t ms, Submit& submit) {
  if (ms > kDeadlineMsMax)
    return error(Errc::kInvalid, "deadline is " + std::to_string(ms) + " ms, the limit is " +
                                     std::to_string(kDeadlineMsMax));
  if (ms > 0) submit.deadline = std::chrono::milliseconds(static_cast<int64_t>(ms));
  return {};
}

}  // namespace

Result<Submit> read_request(api::GenerateRequest::Reader from) {
  Submit submit;
  if (from.getCacheSalt().size() > kCacheSaltBytesMax)
    return over("cache_salt", from.getCacheSalt().size(), "bytes", kCacheSaltBytesMax);
  submit.cache_salt = headrace::to_string(from.getCacheSalt());
  submit.request = read_request_id(from.getRequestId());
  submit.resumable = from.getResumable();
  if (submit.resumable && submit.request == RequestId{})
    return error(Errc::kInvalid, "resumable: needs a request_id that the client draws");
  for (const Status& status : {read_sampling(from.getSampling(), submit), read_stops(from, submit),
                               read_deadline(from.getDeadlineMs(), submit)})
    if (!status.ok()) return status;
  if (from.getHasMaxTokens()) submit.max_tokens = from.getMaxTokens();
  submit.kv_digest = from.getKvDigest();
  // The largest part last: what is refused for another reason costs no copy.
  Result<Prompt> prompt = read_prompt(from.getPrompt());
  if (!prompt) return prompt.error();
  submit.prompt = std::move(*prompt);
  submit.special = from.getPrompt().getSpecial();
  return submit;
}

RequestId read_request_id(api::Id::Reader from) { return {from.getHi(), from.getLo()}; }

void write(api::Chunk::Builder to, const Chunk& chunk) {
  to.setPosition(chunk.position);
  auto ids = to.initIds(static_cast<uint32_t>(chunk.ids.size()));
  for (uint32_t i = 0; i < ids.size(); ++i) ids.set(i, chunk.ids[i]);
  to.setText(capnp::Text::Reader(chunk.text.c_str(), chunk.text.size()));
  if (!chunk.logprobs.empty())
    write(to.initLogprobs(static_cast<uint32_t>(chunk.logprobs.size())), chunk.logprobs);
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
  write(to.initMetrics(), status.metrics);
  to.setLeaving(status.leaving);
}

}  // namespace headrace::coordinator
