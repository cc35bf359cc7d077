#include "coordinator/submit_limits.h"

#include <doctest/doctest.h>

#include <functional>

#include "coordinator/limits.h"

namespace headrace::coordinator {
namespace {

Submit good() {
  Submit m;
  m.request = {1, 1};
  m.prompt = "A";
  return m;
}

}  // namespace

TEST_CASE("each field has its range, each refusal names field and limit") {
  struct Row {
    std::function<void(Submit&)> change;
    const char* named;  // null: allowed
  };
  const auto stops = [](size_t n, std::string text) {
    return [=](Submit& m) { m.stop.assign(n, text); };
  };
  const std::vector<Row> rows = {
      {[](Submit&) {}, nullptr},
      {[](Submit& m) { m.request = {}; }, "request"},
      {[](Submit& m) { m.max_tokens = 0; }, "max_tokens"},
      {stops(16, "x"), nullptr},
      {stops(17, "x"), "the limit is 16"},
      {stops(1, std::string(256, 'x')), nullptr},
      {stops(1, std::string(257, 'x')), "the limit is 256"},
      {stops(1, ""), "stop: a text is empty"},
      {stops(1, "ab\xC3"), "not UTF-8 at byte 2"},
      {stops(1, "\xC3\xA9"), nullptr},
      {[](Submit& m) { m.stop_tokens.assign(64, 5); }, nullptr},
      {[](Submit& m) { m.stop_tokens.assign(65, 5); }, "the limit is 64"},
      {[](Submit& m) { m.stop_tokens = {260}; }, nullptr},
      {[](Submit& m) { m.stop_tokens = {261}; }, "stop_tokens: id 261"},
      {[](Submit& m) { m.stop_tokens = {4'000'000}; }, "vocabulary of 261"},
      {[](Submit& m) { m.stop_tokens = {-1}; }, "stop_tokens: id -1"},
      {[](Submit& m) { m.cache_salt = std::string(256, 's'); }, nullptr},
      {[](Submit& m) { m.cache_salt = std::string(257, 's'); }, "cache_salt"},
      {[](Submit& m) { m.cache_salt = "ab\xc3"; }, "cache_salt is not UTF-8 at byte 2"},
      {[](Submit& m) { m.sampling.top_p = 1.5f; }, "top_p"},
      {[](Submit& m) { m.deadline = Duration{0}; }, "deadline"},
      {[](Submit& m) { m.prompt = std::vector<ChatMessage>(kMessagesMax + 1); }, "4096"},
      {[](Submit& m) { m.prompt = std::vector<Token>{}; }, "ids is empty"},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    Submit m = good();
    rows[i].change(m);
    const Status status = check_submit_fields(m, 261);
    CHECK(status.ok() == (rows[i].named == nullptr));
    if (!rows[i].named) continue;
    CHECK(status.code == Errc::kInvalid);
    CHECK_MESSAGE(status.message.find(rows[i].named) != std::string::npos, status.message);
  }
}

TEST_CASE("a prompt weighs its text, or four bytes an id") {
  CHECK(prompt_bytes(std::string("abc")) == 3);
  CHECK(prompt_bytes(std::vector<Token>{1, 2}) == 8);
  CHECK(prompt_bytes(std::vector<ChatMessage>{{"user", "hi"}}) == 6);
}

}  // namespace headrace::coordinator
