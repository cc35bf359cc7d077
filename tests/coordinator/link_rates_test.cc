#include "coordinator/link_rates.h"

#include <doctest/doctest.h>

#include <limits>

namespace headrace::coordinator {
namespace {

constexpr WorkerPair kPair{WorkerId{1}, WorkerId{2}};
constexpr Instant kNow{1000s};
constexpr uint64_t kMega = 1'000'000;

// Bytes per second, as routing sees it now.
double rate(const LinkRates& rates, WorkerPair pair = kPair) {
  const auto time = rates.transfer(pair, kMega);
  return time ? 1e6 / std::chrono::duration<double>(*time).count() : 0;
}

// The same as often as is believed.
void learn(LinkRates& rates, uint64_t bytes, Duration wire) {
  for (uint32_t i = 0; i < kLinkRateTimes; ++i) rates.learn(kPair, bytes, wire, kNow);
}

}  // namespace

TEST_CASE("one hand-off that was late is not believed, whichever it was; a long one is") {
  LinkRates rates;
  for (const size_t late : {0u, 1u, 2u, 5u}) {
    CAPTURE(late);
    const WorkerPair pair{WorkerId{10 + late}, WorkerId{2}};
    for (size_t i = 0; i < 6; ++i) {
      rates.learn(pair, 10 * kMega, i == late ? 400ms : 20ms, kNow);
      if (i + 1 < kLinkRateTimes) CHECK_FALSE(rates.transfer(pair, kMega));
    }
    CHECK(rate(rates, pair) == doctest::Approx(5e8));
  }
  SUBCASE("two are, of a link that was fast") {
    const WorkerPair pair{WorkerId{10}, WorkerId{2}};
    rates.learn(pair, 10 * kMega, 400ms, kNow);
    CHECK(rate(rates, pair) == doctest::Approx(5e8));
    rates.learn(pair, 10 * kMega, 400ms, kNow);
    CHECK(rate(rates, pair) < 1e8);
  }
  SUBCASE("of one that nobody knows, three") {
    rates.learn(kPair, kMega, 40ms, kNow);
    rates.learn(kPair, kMega, 40ms, kNow);
    CHECK_FALSE(rates.transfer(kPair, kMega));
    rates.learn(kPair, kMega, 40ms, kNow);
    CHECK(rate(rates) == doctest::Approx(25e6));
  }
  SUBCASE("a single one that takes longer says enough") {
    rates.learn(kPair, kMega, kLinkRateWire, kNow);
    CHECK(rate(rates) == doctest::Approx(2e6));
  }
}

TEST_CASE("a pair's rate follows its hand-offs") {
  LinkRates rates;
  CHECK_FALSE(rates.transfer(kPair, kMega));
  learn(rates, 10 * kMega, 100ms);
  CHECK(rate(rates) == doctest::Approx(1e8));
  CHECK_FALSE(rates.transfer({WorkerId{2}, WorkerId{1}}, kMega));
  rates.learn(kPair, 10 * kMega, 125ms, kNow);  // 80 MB/s
  CHECK(rate(rates) > 80e6);
  CHECK(rate(rates) < 100e6);
  SUBCASE("that is slow now: it shows at once, since the slow ones take the time") {
    rates.learn(kPair, 10 * kMega, 10s, kNow);
    CHECK(rate(rates) < 3e6);
  }
  SUBCASE("a small one that is slow has only begun") {
    for (int i = 0; i < 5; ++i) rates.learn(kPair, kLinkRateBytes, 33ms, kNow);  // 2 MB/s
    CHECK(rate(rates) > 30e6);
  }
  SUBCASE("a small one that is fast proves that the link is") {
    rates.learn(kPair, 10 * kMega, 10s, kNow);
    rates.learn(kPair, 100'000, 1ms, kNow);
    CHECK(rate(rates) == doctest::Approx(1e8));
  }
}

TEST_CASE("what tells nothing, or cannot be, does not count") {
  LinkRates rates;
  rates.learn(kPair, kLinkRateBytes - 1, 1ms, kNow);
  rates.learn(kPair, kLinkRateBytes, Duration{0}, kNow);
  rates.learn(kPair, kLinkRateBytes, Duration::min(), kNow);
  rates.learn(kPair, kLinkRateBytes, Duration::max(), kNow);
  CHECK(rates.size() == 0);
  learn(rates, std::numeric_limits<uint64_t>::max(), 1ns);
  CHECK(*rates.transfer(kPair, kMega) == Duration{0});
  rates.learn({WorkerId{3}, WorkerId{2}}, kLinkRateBytes, kLinkWireMax, kNow);
  CHECK(*rates.transfer({WorkerId{3}, WorkerId{2}}, std::numeric_limits<uint64_t>::max()) ==
        kTransferMax);
}

TEST_CASE("trials are paid from a hundredth of all time to the first token") {
  LinkRates rates;
  CHECK(rates.credit(kPair, kMega, kNow) == Duration{0});
  for (int i = 0; i < 30; ++i) rates.served(1s);
  const Instant later = kNow + kLinkRateFresh;
  SUBCASE("a pair that has been slow") {
    rates.learn(kPair, kMega, 1s, kNow);
    CHECK(rates.credit(kPair, kMega, later - 1ns) == Duration{0});
    CHECK(rates.credit(kPair, kMega, later) == 300ms);
    CHECK(rates.credit({WorkerId{2}, WorkerId{1}}, kMega, later) == Duration{0});  // unknown
    CHECK(rates.credit(kPair, kLinkRateBytes - 1, later) == Duration{0});  // would tell nothing
    rates.handed(kPair, 200ms, later);
    CHECK(rates.credit(kPair, kMega, later) == Duration{0});  // one at a time
    CHECK(rates.credit(kPair, kMega, later + kLinkRateFresh) == 100ms);
  }
  SUBCASE("one whose link is not known, for its prefill worker") {
    rates.handed(kPair, 100ms, kNow);
    CHECK_FALSE(rates.transfer(kPair, kMega));
    CHECK(rates.credit(kPair, 1, later) == 200ms);
    rates.handed(kPair, 1h, later);  // never more than there is
    CHECK(rates.credit(kPair, kMega, later + kLinkRateFresh) == Duration{0});
  }
  SUBCASE("there is a limit") {
    rates.handed(kPair, Duration::min(), kNow);
    rates.served(Duration::min());
    rates.served(Duration::max());
    CHECK(rates.credit(kPair, kMega, later) == kLinkTrialMax);
  }
}

TEST_CASE("a worker that has gone takes its pairs along, and there is a limit") {
  LinkRates rates;
  rates.learn(kPair, kMega, 1s, kNow);
  rates.learn({WorkerId{3}, WorkerId{1}}, kMega, 1s, kNow);
  rates.learn({WorkerId{3}, WorkerId{4}}, kMega, 1s, kNow);
  rates.forget(WorkerId{1});
  CHECK(rates.size() == 1);
  for (uint64_t i = 0; i < 2 * kPairsMax; ++i)
    rates.learn({WorkerId{100 + i}, WorkerId{4}}, kMega, 1s, kNow + 1s);
  CHECK(rates.size() == kPairsMax);
  CHECK_FALSE(rates.transfer({WorkerId{3}, WorkerId{4}}, kMega));
}

}  // namespace headrace::coordinator
