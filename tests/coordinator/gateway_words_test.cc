#include "coordinator/gateway_words.h"

#include <capnp/message.h>
#include <doctest/doctest.h>

namespace headrace::coordinator {

TEST_CASE("a request is read whole; what is left out has its default") {
  capnp::MallocMessageBuilder message;
  auto r = message.initRoot<api::GenerateRequest>();
  CHECK(read_request(r).error().message == "prompt: give text, tokens or chat");
  r.initPrompt().setText("hi");
  auto plain = read_request(r);
  REQUIRE(plain);
  CHECK(std::get<std::string>(plain->prompt) == "hi");
  CHECK_FALSE(plain->special);
  CHECK_FALSE(plain->seed);
  CHECK_FALSE(plain->max_tokens);
  CHECK(plain->sampling == Sampling{});
  CHECK(plain->deadline == 10min);
  auto chat = r.initPrompt().initChat().initMessages(1);
  chat[0].setRole("user");
  chat[0].setContent("x");
  auto s = r.initSampling();
  s.setTemperature(2);
  s.setTopK(-1);
  s.setTopP(0.5f);
  s.setMinP(0.25f);
  s.setHasSeed(true);
  s.setSeed(0);
  r.setHasMaxTokens(true);
  r.setDeadlineMs(1500);
  r.setKvDigest(true);
  auto full = read_request(r);
  REQUIRE(full);
  CHECK(std::get<std::vector<ChatMessage>>(full->prompt).at(0).content == "x");
  CHECK(full->sampling == Sampling{2, -1, 0.5f, 0.25f, 0});
  CHECK(full->seed == 0u);
  CHECK(full->max_tokens == 0u);  // refused later, by name
  CHECK(full->deadline == 1500ms);
  CHECK(full->kv_digest);
  r.setDeadlineMs(UINT64_MAX);
  CHECK(read_request(r).error().message.find("deadline") == 0);
}

TEST_CASE("the parts of a request have limits, and what breaks one names it") {
  capnp::MallocMessageBuilder message;
  auto r = message.initRoot<api::GenerateRequest>();
  r.initPrompt().setText("hi");
  const auto refusal = [&] {
    const auto read = read_request(r);
    return read ? std::string() : read.error().message;
  };
  r.setResumable(true);
  CHECK(refusal() == "resumable: needs a request_id that the client draws");
  r.initRequestId().setLo(5);
  CHECK(refusal() == "");
  r.initStop(17);
  CHECK(refusal() == "stop has 17 texts, the limit is 16");
  auto stop = r.initStop(2);
  stop.set(0, "a");
  CHECK(refusal() == "stop[1] is empty");
  stop.set(1, std::string(257, 'b'));
  CHECK(refusal() == "stop[1] has 257 bytes, the limit is 256");
  stop.set(1, "\xE4\xB8");
  CHECK(refusal() == "stop[1] is not valid UTF-8");
  stop.set(1, std::string(256, 'b'));
  r.initStopTokens(65);
  CHECK(refusal() == "stop_tokens has 65 ids, the limit is 64");
  r.initStopTokens(1).set(0, -3);  // judged later, against the vocabulary
  r.initSampling().initLogitBias(1025);
  CHECK(refusal() == "logit_bias has 1025 entries, the limit is 1024");
  auto bias = r.getSampling().initLogitBias(1);
  bias[0].setId(7);
  bias[0].setBias(-2);
  r.getSampling().setPresencePenalty(1);
  r.getSampling().setFrequencyPenalty(-1);
  r.getSampling().setRepetitionPenalty(2);
  r.getSampling().setLogprobs(3);
  r.setCacheSalt(std::string(257, 's'));
  CHECK(refusal() == "cache_salt has 257 bytes, the limit is 256");
  r.setCacheSalt("salt");
  r.setIncludeStop(true);
  r.setIgnoreEos(true);
  const auto read = read_request(r);
  REQUIRE(read);
  CHECK(read->request == RequestId{0, 5});
  CHECK(read->resumable);
  CHECK(read->stop == std::vector<std::string>{"a", std::string(256, 'b')});
  CHECK(read->include_stop);
  CHECK(read->stop_tokens == std::vector<Token>{-3});
  CHECK(read->ignore_eos);
  CHECK(read->cache_salt == "salt");
  CHECK(read->sampling.bias == std::vector<LogitBias>{{7, -2}});
  CHECK(read->sampling.presence_penalty == 1);
  CHECK(read->sampling.frequency_penalty == -1);
  CHECK(read->sampling.repetition_penalty == 2);
  CHECK(read->sampling.logprobs == 3);
}

TEST_CASE("ids of any value are carried, to be judged by the Dispatcher") {
  capnp::MallocMessageBuilder message;
  auto p = message.initRoot<api::Prompt>();
  auto ids = p.initTokens().initIds(3);
  ids.set(0, -1);
  ids.set(1, INT32_MAX);
  auto read = read_prompt(p);
  REQUIRE(read);
  CHECK(std::get<std::vector<Token>>(*read) == std::vector<Token>{-1, INT32_MAX, 0});
}

TEST_CASE("times that are no numbers become zero") {
  capnp::MallocMessageBuilder message;
  auto a = message.initRoot<api::Answer>();
  Ended ended;
  ended.finish = Finish::kLength;
  ended.timing = {-1, 0.25, 1};
  ended.usage = {1, 2, 3};
  ended.text = std::string("a\0b", 3);
  ended.kv = {7, 8};
  write(a, ended);
  CHECK(a.getQueueNs() == 0);
  CHECK(a.getFirstTokenNs() == 250'000'000);
  CHECK(a.getFinish() == api::FinishReason::LENGTH);
  CHECK(a.getUsage().getCachedTokens() == 3);
  CHECK(to_string(a.getText()) == ended.text);
  CHECK(read(a.getKv().asReader()) == Digest{7, 8});
}

TEST_CASE("status with and without a model") {
  capnp::MallocMessageBuilder message;
  auto s = message.initRoot<api::Status>();
  ClusterStatus status;
  status.not_ready = "why";
  write(s, status);
  CHECK(s.getModels().size() == 0);
  CHECK(to_string(s.getNotReady()) == "why");
  status.model.emplace();
  status.model->name = "M";
  status.workers.resize(2);
  status.workers[1].role = Role::kPrefill;
  status.totals.gaps = 5;
  status.totals.resumed = 6;
  status.totals.poisoned = 7;
  write(s, status);
  CHECK(to_string(s.getModels()[0].getName()) == "M");
  CHECK(s.getWorkers()[1].getRole() == api::Role::PREFILL);
  CHECK(s.getTotals().getGaps() == 5);
  CHECK(s.getTotals().getResumed() == 6);
  CHECK(s.getTotals().getPoisoned() == 7);
}

}  // namespace headrace::coordinator
