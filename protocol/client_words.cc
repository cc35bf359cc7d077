#include "protocol/client_words.h"

#include <utility>

namespace headrace::client {
namespace {

Status no_answer() {
  return error(Errc::kUnknown, "the coordinator answered in words of a newer version");
}

double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

const char* name(api::Role role) {
  switch (role) {
    case api::Role::PREFILL:
      return "prefill";
    case api::Role::DECODE:
      return "decode";
    case api::Role::BOTH:
      return "both";
    case api::Role::UNSPECIFIED:
      break;
  }
  return "unknown";
}

Worker read_worker(api::Worker::Reader from) {
  Worker w;
  w.id = from.getId();
  w.name = headrace::to_string(from.getName());
  w.role = name(from.getRole());
  w.state = headrace::to_string(from.getState());
  w.pid = from.getPid();
  w.device = headrace::to_string(from.getDevice());
  w.kv = read(from.getKv());
  w.metrics = read(from.getMetrics());
  w.blocks = read(from.getBlocks());
  w.in_flight = from.getInFlight();
  w.running = from.getRunning();
  w.steps = from.getSteps();
  w.prefill = read(from.getPrefill());
  w.decode = read(from.getDecode());
  return w;
}

void write_sampling(api::Sampling::Builder to, const Sampling& sampling) {
  to.setTemperature(sampling.temperature);
  to.setTopK(sampling.top_k);
  to.setTopP(sampling.top_p);
  to.setMinP(sampling.min_p);
  to.setPresencePenalty(sampling.presence_penalty);
  to.setFrequencyPenalty(sampling.frequency_penalty);
  to.setRepetitionPenalty(sampling.repetition_penalty);
  auto bias = to.initLogitBias(static_cast<uint32_t>(sampling.bias.size()));
  for (uint32_t i = 0; i < bias.size(); ++i) {
    bias[i].setId(sampling.bias[i].id);
    bias[i].setBias(sampling.bias[i].bias);
  }
  to.setLogprobs(sampling.logprobs);
}

}  // namespace

uint64_t payload_bytes(const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  if (const auto* ids = std::get_if<std::vector<Token>>(&prompt))
    return ids->size() * sizeof(Token);
  uint64_t bytes = 0;
  for (const ChatMessage& m : std::get<std::vector<ChatMessage>>(prompt))
    bytes += m.role.size() + m.content.size();
  return bytes;
}

uint64_t payload_bytes(const GenerateRequest& request) {
  uint64_t bytes = payload_bytes(request.prompt) + request.cache_salt.size();
  bytes += request.sampling.bias.size() * sizeof(LogitBias);
  bytes += request.stop_tokens.size() * sizeof(Token);
  for (const std::string& text : request.stop) bytes += text.size();
  return bytes;
}

Status check_bytes(uint64_t bytes) {
  if (bytes <= Client::kRequestBytesMax) return {};
  return error(Errc::kInvalid, "request is " + std::to_string(bytes) + " bytes, the limit is " +
                                   std::to_string(Client::kRequestBytesMax));
}

void write(api::Prompt::Builder to, const Prompt& prompt, bool special) {
  to.setSpecial(special);
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    to.setText(capnp::Text::Reader(text->c_str(), text->size()));
  } else if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
    auto list = to.initTokens().initIds(static_cast<uint32_t>(ids->size()));
    for (uint32_t i = 0; i < list.size(); ++i) list.set(i, (*ids)[i]);
  } else {
    const auto& messages = std::get<std::vector<ChatMessage>>(prompt);
    auto list = to.initChat().initMessages(static_cast<uint32_t>(messages.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
      list[i].setRole(messages[i].role);
      list[i].setContent(messages[i].content);
    }
  }
}

void write(api::GenerateRequest::Builder to, const GenerateRequest& request) {
  write(to.initPrompt(), request.prompt, request.special);
  auto sampling = to.initSampling();
  write_sampling(sampling, request.sampling);
  sampling.setHasSeed(request.seed.has_value());
  sampling.setSeed(request.seed.value_or(0));
  to.setHasMaxTokens(request.max_tokens.has_value());
  to.setMaxTokens(request.max_tokens.value_or(0));
  if (request.deadline)
    to.setDeadlineMs(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(*request.deadline).count()));
  to.setKvDigest(request.kv_digest);
  write(to.initRequestId(), request.request_id);
  to.setResumable(request.resumable);
  auto stop = to.initStop(static_cast<uint32_t>(request.stop.size()));
  for (uint32_t i = 0; i < stop.size(); ++i)
    stop.set(i, capnp::Text::Reader(request.stop[i].c_str(), request.stop[i].size()));
  to.setIncludeStop(request.include_stop);
  auto tokens = to.initStopTokens(static_cast<uint32_t>(request.stop_tokens.size()));
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens.set(i, request.stop_tokens[i]);
  to.setIgnoreEos(request.ignore_eos);
  to.setCacheSalt(capnp::Text::Reader(request.cache_salt.c_str(), request.cache_salt.size()));
}

Chunk read_chunk(api::Chunk::Reader from) {
  Chunk chunk;
  chunk.position = from.getPosition();
  chunk.ids.reserve(from.getIds().size());
  for (const Token id : from.getIds()) chunk.ids.push_back(id);
  chunk.text = headrace::to_string(from.getText());
  chunk.logprobs = read(from.getLogprobs());
  return chunk;
}

Result<Answer> read_end(api::Generation::Reader from, const Answer& so_far) {
  if (from.isError()) return read(from.getError());
  if (!from.isOk()) return no_answer();
  const auto end = from.getOk();
  Answer answer = so_far;
  answer.finish = from_api(end.getFinish());
  answer.tail = headrace::to_string(end.getText());
  answer.text += answer.tail;
  answer.prompt_tokens = end.getUsage().getPromptTokens();
  answer.completion_tokens = end.getUsage().getCompletionTokens();
  answer.cached_tokens = end.getUsage().getCachedTokens();
  answer.queue = seconds(end.getQueueNs());
  answer.first_token = seconds(end.getFirstTokenNs());
  answer.total = seconds(end.getTotalNs());
  answer.remote_prefill = end.getRemotePrefill();
  answer.kv = read(end.getKv());
  return answer;
}

std::vector<Model> read_models(capnp::List<api::Model>::Reader from) {
  std::vector<Model> models;
  for (const auto m : from)
    models.push_back({headrace::to_string(m.getName()), headrace::to_string(m.getArchitecture()),
                      read(m.getDigest()), m.getContext(), m.getVocabulary(), m.getBlockTokens(),
                      headrace::to_string(m.getNumerics()), m.getChat(), m.getLayers(),
                      m.getWeightBytes(), headrace::to_string(m.getKvLayout()), m.getBlockBytes()});
  return models;
}

ClusterStatus read_status(api::Status::Reader from) {
  ClusterStatus s;
  s.ready = from.getReady();
  s.not_ready = headrace::to_string(from.getNotReady());
  s.models = read_models(from.getModels());
  for (const auto w : from.getWorkers()) s.workers.push_back(read_worker(w));
  s.running = from.getRunning();
  s.waiting = from.getWaiting();
  s.draining = from.getDraining();
  s.metrics = read(from.getMetrics());
  s.leaving = from.getLeaving();
  const auto t = from.getTotals();
  s.totals = {{"submitted", t.getSubmitted()},
              {"refused", t.getRefused()},
              {"stopped", t.getStopped()},
              {"cancelled", t.getCancelled()},
              {"failed", t.getFailed()},
              {"tokens", t.getTokens()},
              {"attempts", t.getAttempts()},
              {"attempts_failed", t.getAttemptsFailed()},
              {"refusals", t.getRefusals()},
              {"remote_prefills", t.getRemotePrefills()},
              {"workers_lost", t.getWorkersLost()},
              {"stale", t.getStale()},
              {"repeats", t.getRepeats()},
              {"gaps", t.getGaps()},
              {"conflicts", t.getConflicts()},
              {"resumed", t.getResumed()},
              {"stop_matched", t.getStopMatched()},
              {"told_again", t.getToldAgain()},
              {"closing_lost", t.getClosingLost()},
              {"prefix_gaps", t.getPrefixGaps()},
              {"poisoned", t.getPoisoned()}};
  return s;
}

Result<std::vector<Token>> read_tokens(api::Tokenized::Reader from) {
  if (from.isError()) return read(from.getError());
  if (!from.isOk()) return no_answer();
  std::vector<Token> ids;
  for (const Token id : from.getOk().getIds()) ids.push_back(id);
  return ids;
}

Result<std::string> read_text(api::Detokenized::Reader from) {
  if (from.isError()) return read(from.getError());
  if (!from.isOk()) return no_answer();
  return headrace::to_string(from.getOk());
}

}  // namespace headrace::client
