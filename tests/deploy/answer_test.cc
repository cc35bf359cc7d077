#include "deploy/cli/answer.h"

#include <doctest/doctest.h>

#include "deploy/cli/output.h"
#include "tests/deploy/capture.h"

namespace headrace::cli {
namespace {

using coordinator::Chunk;
using coordinator::Ended;

ModelCost cost_of(uint64_t weights, uint64_t kv) {
  ModelCost cost;
  cost.weight_bytes = weights;
  cost.kv_token_bytes = kv;
  return cost;
}

Ended ended(Finish finish, double first, double total) {
  Ended e;
  e.finish = finish;
  e.usage = {10, 5, 0};
  e.timing = {0, first, total};
  return e;
}

TEST_CASE("figures: steps after the first token, weights and KV of each") {
  Answer answer;
  answer.ids = {1, 2, 3, 4, 5};
  answer.ended = ended(Finish::kStop, 1, 3);
  MachineLimits limits;
  limits.read = {{1, 1000}};
  // 4 steps in 2 s; the contexts 11, 12, 13, 14 average 12.5.
  const auto f = figures(answer, cost_of(100, 2), limits);
  REQUIRE(f);
  CHECK(f->tokens_per_second == doctest::Approx(2));
  CHECK(f->bytes_per_second == doctest::Approx(2 * (100 + 25)));
  CHECK(f->limit == 1000);
  CHECK(f->share() == doctest::Approx(0.25));
  answer.ids = {1};
  CHECK(!figures(answer, cost_of(100, 2), limits));
}

TEST_CASE("the ceiling is the limit over the bytes of a token") {
  MachineLimits limits;
  CHECK(ceiling_tokens_per_second(limits, cost_of(100, 0)) == 0);
  limits.read = {{1, 1000}};
  CHECK(ceiling_tokens_per_second(limits, cost_of(100, 0)) == 10);
  CHECK(ceiling_tokens_per_second(limits, cost_of(0, 0)) == 0);
}

TEST_CASE("text streams as it comes, figures go to stderr") {
  Capture out(STDOUT_FILENO), err(STDERR_FILENO);
  AnswerPrinter printer(false, {1, 2});
  CHECK(printer.on(Chunk{0, {1, 2}, "Hel"}));
  CHECK(printer.on(Chunk{2, {3}, ""}));
  Ended end = ended(Finish::kLength, 0.5, 1);
  end.text = "lo";
  Asked asked;
  asked.max_tokens = 5;
  CHECK(printer.finish(end, {}, {}, asked) == kExitOk);
  CHECK(err.text() ==
        "headrace: ended at --max-tokens 5\n"
        "headrace: 3 tokens, 4.0 tok/s, 0.00 GB/s; first token after 500 ms\n");
  CHECK(out.text() == "Hello\n");
}

TEST_CASE("why an answer ended, unless it ended by itself") {
  Answer answer;
  Asked asked;
  answer.text = "Hello";
  answer.ended = ended(Finish::kStop, 0.5, 1);  // 10 + 5 tokens
  CHECK(why_ended(answer, asked).empty());
  answer.ended.finish = Finish::kLength;
  CHECK(why_ended(answer, asked).find("prompt and answer have 15 tokens") != std::string::npos);
  asked.max_tokens = 6;  // not reached: the context was
  CHECK(why_ended(answer, asked).find("context") != std::string::npos);
  asked.max_tokens = 5;
  CHECK(why_ended(answer, asked) == "ended at --max-tokens 5");
  asked.max_tokens = {};
  asked.resumed = true;
  CHECK(why_ended(answer, asked).find("it was asked with") != std::string::npos);
}

TEST_CASE("an empty answer hints at --chat, where that would help") {
  Answer answer;
  Asked asked;
  answer.text = " \n";
  answer.ended = ended(Finish::kStop, 0.5, 1);
  CHECK(why_ended(answer, asked) == "the answer is empty: the model ended at once");
  asked.plain = true;
  CHECK(why_ended(answer, asked).find("--chat") == std::string::npos);
  asked.can_chat = true;
  CHECK(why_ended(answer, asked).find("try --chat") != std::string::npos);
  asked.stops = true;
  CHECK(why_ended(answer, asked).find("a stop or") != std::string::npos);
  asked.plain = false;
  CHECK(why_ended(answer, asked).find("--chat") == std::string::npos);
}

TEST_CASE("JSON is one object at the end") {
  Capture out(STDOUT_FILENO);
  AnswerPrinter printer(true, {1, 2});
  printer.on(Chunk{0, {7}, "x"});
  Ended end = ended(Finish::kStop, 0.5, 1);
  end.kv = Digest{1, 2};
  Asked asked;
  asked.kv_digest = true;
  CHECK(printer.finish(end, {}, {}, asked) == kExitOk);
  const auto json = nlohmann::json::parse(out.text());
  CHECK(json["ids"] == std::vector<Token>{7});
  CHECK(json["text"] == "x");
  CHECK(json["finish"] == "stop");
  CHECK(json["usage"] ==
        nlohmann::json{{"prompt_tokens", 10}, {"completion_tokens", 5}, {"cached_tokens", 0}});
  CHECK(json["timing"]["total"] == 1.0);
  CHECK(json["kv_digest"] == "00000000000000010000000000000002");
  CHECK(!json.contains("error"));
}

TEST_CASE("an answer cut short says why, on both ways out") {
  Capture out(STDOUT_FILENO), err(STDERR_FILENO);
  AnswerPrinter printer(true, {1, 2});
  printer.on(Chunk{0, {7}, "x"});
  Ended end = ended(Finish::kError, 0, 1);
  end.status = error(Errc::kDisconnected, "the worker is gone");
  CHECK(printer.finish(end, {}, {}, {}) == kExitFailed);
  CHECK(err.text() == "headrace: the worker is gone\n");
  const auto json = nlohmann::json::parse(out.text());
  CHECK(json["finish"] == "error");
  CHECK(json["error"]["message"] == "the worker is gone");
}

TEST_CASE("a refusal is no object") {
  Capture out(STDOUT_FILENO), err(STDERR_FILENO);
  AnswerPrinter printer(true, {1, 2});
  Ended end = ended(Finish::kError, 0, 0);
  end.status = error(Errc::kInvalid, "no");
  CHECK(printer.finish(end, {}, {}, {}) == kExitFailed);
  CHECK(out.text().empty());
}

}  // namespace
}  // namespace headrace::cli
