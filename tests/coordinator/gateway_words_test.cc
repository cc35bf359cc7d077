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
  write(s, status);
  CHECK(to_string(s.getModels()[0].getName()) == "M");
  CHECK(s.getWorkers()[1].getRole() == api::Role::PREFILL);
  CHECK(s.getTotals().getGaps() == 5);
}

}  // namespace headrace::coordinator
