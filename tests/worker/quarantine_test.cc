#include "worker/quarantine.h"

#include <doctest/doctest.h>

#include <string>

namespace headrace::worker {
namespace {

TransferId transfer(uint64_t n) { return {7, n}; }

TEST_CASE("what is quarantined is neither free nor readable until its writer has stopped") {
  BlockPool pool(100);
  Quarantine q(pool);
  const auto refs = *pool.take(2, Hold::kIncoming);
  q.add(transfer(1), refs, Instant{});
  CHECK(pool.counts().quarantined == 2);
  CHECK(pool.counts().incoming == 0);
  CHECK(pool.available() == 98);
  CHECK(pool.state(refs[0]) == BlockState::kQuarantined);
  CHECK(q.blocks() == 2);
  CHECK(q.stopped(transfer(2)) == 0);
  CHECK(q.stopped(transfer(1)) == 2);
  CHECK(q.stopped(transfer(1)) == 0);
  CHECK(pool.free() == 100);
  CHECK(!pool.current(refs[0]));
  CHECK(q.health(Instant{} + 1h).ok());
}

TEST_CASE("too many blocks, too many transfers or too long: sick, and it says why") {
  const auto says = [](const Status& s, const char* words) {
    CHECK(s.code == Errc::kUnavailable);
    CHECK_MESSAGE(s.message.find(words) != std::string::npos, s.message);
  };
  BlockPool pool(1000);
  Quarantine q(pool);
  q.add(transfer(1), *pool.take(20, Hold::kIncoming), Instant{});
  CHECK(q.health(Instant{} + 9999ms).ok());
  says(q.health(Instant{} + 10s), "10 s");
  q.add(transfer(2), *pool.take(1, Hold::kIncoming), Instant{});
  says(q.health(Instant{}), "21 KV blocks are in quarantine, 20 are the limit");
  q.stopped(transfer(1));
  CHECK(q.health(Instant{} + 1s).ok());
  for (uint64_t i = 3; i <= 9; ++i) q.add(transfer(i), *pool.take(1, Hold::kIncoming), Instant{});
  CHECK(q.transfers() == 8);
  CHECK(q.health(Instant{} + 1s).ok());
  q.add(transfer(10), *pool.take(1, Hold::kIncoming), Instant{});
  says(q.health(Instant{} + 1s), "9 transfers are in quarantine, 8 are the limit");
  q.add(transfer(11), {}, Instant{});  // nothing to keep
  CHECK(q.transfers() == 9);
}

TEST_CASE("a small pool may have one block in quarantine") {
  BlockPool pool(10);
  Quarantine q(pool);
  q.add(transfer(1), *pool.take(1, Hold::kIncoming), Instant{});
  CHECK(q.health(Instant{}).ok());
  q.add(transfer(2), *pool.take(1, Hold::kIncoming), Instant{});
  CHECK(!q.health(Instant{}).ok());
}

}  // namespace
}  // namespace headrace::worker
