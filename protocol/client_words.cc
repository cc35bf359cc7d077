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
  return w;
}

}  // namespace

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
  sampling.setTemperature(request.sampling.temperature);
  sampling.setTopK(request.sampling.top_k);
  sampling.setTopP(request.sampling.top_p);
  sampling.setMinP(request.sampling.min_p);
  sampling.setHasSeed(request.seed.has_value());
  sampling.setSeed(request.seed.value_or(0));
  to.setHasMaxTokens(request.max_tokens.has_value());
  to.setMaxTokens(request.max_tokens.value_or(0));
  if (request.deadline)
    to.setDeadlineMs(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(*request.deadline).count()));
  to.setKvDigest(request.kv_digest);
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
                      m.getWeightBytes()});
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
              {"conflicts", t.getConflicts()}};
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
