#include "protocol/client_words.h"

#include <capnp/message.h>
#include <doctest/doctest.h>

namespace headrace::client {

TEST_CASE("a request is written whole") {
  capnp::MallocMessageBuilder message;
  auto r = message.initRoot<api::GenerateRequest>();
  write(r, {.prompt = std::string("a\0b", 3),
            .special = true,
            .sampling = {1, 2, 0.5f, 0.25f, 99},
            .seed = 7,
            .max_tokens = 3,
            .deadline = 1500ms,
            .kv_digest = true});
  CHECK(headrace::to_string(r.getPrompt().getText()) == std::string("a\0b", 3));
  CHECK(r.getPrompt().getSpecial());
  CHECK(r.getSampling().getTopK() == 2);
  CHECK(r.getSampling().getHasSeed());
  CHECK(r.getSampling().getSeed() == 7);
  CHECK(r.getMaxTokens() == 3);
  CHECK(r.getHasMaxTokens());
  CHECK(r.getDeadlineMs() == 1500);
  CHECK(r.getKvDigest());
  write(r, {.prompt = std::vector<Token>{4, 5}});
  CHECK(r.getPrompt().getTokens().getIds().size() == 2);
  CHECK_FALSE(r.getHasMaxTokens());
  CHECK_FALSE(r.getSampling().getHasSeed());
  write(r, {.prompt = std::vector<ChatMessage>{{"user", "x"}}});
  CHECK(headrace::to_string(r.getPrompt().getChat().getMessages()[0].getRole()) == "user");
}

TEST_CASE("what was added to a request is written too") {
  capnp::MallocMessageBuilder message;
  auto r = message.initRoot<api::GenerateRequest>();
  GenerateRequest request;
  request.prompt = "x";
  request.sampling.presence_penalty = 1;
  request.sampling.frequency_penalty = 2;
  request.sampling.repetition_penalty = 3;
  request.sampling.bias = {{4, 5}};
  request.sampling.logprobs = 6;
  request.request_id = {7, 8};
  request.resumable = true;
  request.stop = {"one", std::string("t\0o", 3)};
  request.include_stop = true;
  request.stop_tokens = {9, 10};
  request.ignore_eos = true;
  request.cache_salt = "salt";
  write(r, request);
  auto s = r.getSampling();
  CHECK(s.getPresencePenalty() == 1);
  CHECK(s.getFrequencyPenalty() == 2);
  CHECK(s.getRepetitionPenalty() == 3);
  CHECK(s.getLogitBias()[0].getId() == 4);
  CHECK(s.getLogitBias()[0].getBias() == 5);
  CHECK(s.getLogprobs() == 6);
  CHECK(r.getRequestId().getHi() == 7);
  CHECK(r.getRequestId().getLo() == 8);
  CHECK(r.getResumable());
  CHECK(headrace::to_string(r.getStop()[1]) == std::string("t\0o", 3));
  CHECK(r.getIncludeStop());
  CHECK(r.getStopTokens()[1] == 10);
  CHECK(r.getIgnoreEos());
  CHECK(headrace::to_string(r.getCacheSalt()) == "salt");
}

TEST_CASE("what is too large is refused by its size, before it is built") {
  GenerateRequest request;
  request.prompt = std::string(70 << 20, 'a');
  CHECK(payload_bytes(request) == 70u << 20);
  const Status refused = check_bytes(payload_bytes(request));
  CHECK(refused.code == Errc::kInvalid);
  CHECK(refused.message.find("73400320 bytes, the limit is 1048576") != std::string::npos);
  CHECK(check_bytes(Client::kRequestBytesMax).ok());
}

TEST_CASE("ends: answer, error, and words that are not known yet") {
  capnp::MallocMessageBuilder message;
  auto g = message.initRoot<api::Generation>();
  CHECK(read_end(g, {}).error().code == Errc::kUnknown);
  auto ok = g.initOk();
  ok.setText("z");
  ok.setFinish(api::FinishReason::STOP);
  ok.setTotalNs(1'500'000'000);
  ok.initUsage().setPromptTokens(4);
  Answer so_far;
  so_far.text = "xy";
  so_far.ids = {1, 2};
  auto end = read_end(g, so_far);
  REQUIRE(end);
  CHECK(end->text == "xyz");
  CHECK(end->ids.size() == 2);
  CHECK(end->finish == Finish::kStop);
  CHECK(end->total == doctest::Approx(1.5));
  CHECK(end->prompt_tokens == 4);
  write(g.initError(), error(Errc::kDeadline, "late"));
  CHECK(read_end(g, {}).error() == error(Errc::kDeadline, "late"));
}

TEST_CASE("tokens, text and status") {
  capnp::MallocMessageBuilder message;
  auto t = message.initRoot<api::Tokenized>();
  CHECK_FALSE(read_tokens(t));
  t.initOk().initIds(2).set(1, 9);
  CHECK(*read_tokens(t) == std::vector<Token>{0, 9});
  capnp::MallocMessageBuilder other;
  auto d = other.initRoot<api::Detokenized>();
  CHECK_FALSE(read_text(d));
  d.setOk("x");
  CHECK(*read_text(d) == "x");
  capnp::MallocMessageBuilder third;
  auto s = third.initRoot<api::Status>();
  s.setReady(true);
  auto w = s.initWorkers(1)[0];
  w.setRole(api::Role::DECODE);
  w.initBlocks().setFree(5);
  s.initTotals().setTokens(11);
  const ClusterStatus status = read_status(s);
  CHECK(status.ready);
  CHECK(status.workers.at(0).role == "decode");
  CHECK(status.workers.at(0).blocks.free == 5);
  CHECK(status.totals.at(5) == std::pair<std::string, uint64_t>{"tokens", 11});
}

}  // namespace headrace::client
