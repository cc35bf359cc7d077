#include "coordinator/token_log.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using V = TokenLog::Verdict;

static V put(TokenLog& log, uint32_t position, std::vector<Token> ids) {
  return log.append(position, ids);
}

TEST_CASE("positions decide what is new, a repeat, a gap or a contradiction") {
  TokenLog log;
  CHECK(put(log, 0, {1, 2}) == V::kAppended);
  CHECK(put(log, 2, {3}) == V::kAppended);
  CHECK(put(log, 0, {1, 2, 3}) == V::kRepeat);
  CHECK(put(log, 3, {}) == V::kRepeat);
  CHECK(put(log, 1, {2, 3, 4}) == V::kAppended);
  CHECK(put(log, 5, {6}) == V::kGap);
  CHECK(put(log, 4294967295u, {6}) == V::kGap);
  CHECK(put(log, 3, {9, 5}) == V::kConflict);
  CHECK(log.tokens() == std::vector<Token>{1, 2, 3, 4});
}

TEST_CASE("credit bounds what is sent") {
  TokenLog log;
  put(log, 0, std::vector<Token>(100, 7));
  CHECK(log.sendable().size() == kUnacknowledgedMax);
  log.mark_sent(60);
  CHECK(log.sendable().size() == 4);
  log.mark_sent(4);
  CHECK(log.sendable().empty());
  CHECK_FALSE(log.acknowledge(65));
  CHECK(log.acknowledge(30));
  CHECK_FALSE(log.acknowledge(29));
  CHECK(log.acknowledge(30));
  CHECK(log.sendable().size() == 30);
  log.mark_sent(30);
  CHECK(log.acknowledge(94));
  CHECK(log.sendable().size() == 6);
  log.mark_sent(6);
  CHECK(log.all_sent());
}

TEST_CASE("a log is cut behind a stop text, and sent again from anywhere") {
  TokenLog log;
  const std::vector<Token> ids = {1, 2, 3, 4, 5};
  CHECK(log.append(0, ids) == TokenLog::Verdict::kAppended);
  log.mark_sent(2);
  log.truncate(3);
  CHECK(log.size() == 3);
  CHECK(log.sendable().size() == 1);
  log.mark_sent(1);
  CHECK(log.acknowledge(3));
  log.rewind(1);
  CHECK(log.sent() == 1);
  CHECK(log.sendable().size() == 2);
  CHECK(log.sendable()[0] == 2);
  CHECK_FALSE(log.acknowledge(3));  // of the one before
  log.rewind(3);
  CHECK(log.all_sent());
}

}  // namespace headrace::coordinator
