#include "protocol/error.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "protocol/result.h"

namespace headrace {
namespace {

TEST_CASE("every code has a word of its own") {
  std::set<std::string> words;
  for (uint16_t code = 0; code <= static_cast<uint16_t>(Errc::kUnknown); ++code)
    words.insert(std::string(name(static_cast<Errc>(code))));
  CHECK(words.size() == static_cast<size_t>(Errc::kUnknown) + 1);
  CHECK(name(Errc::kContextExceeded) == "context_length_exceeded");
  CHECK(name(static_cast<Errc>(999)) == "unknown");
}

TEST_CASE("a result is a value or the reason why there is none") {
  const Result<int> good = 3;
  CHECK(good.has_value());
  CHECK(*good == 3);
  const Result<int> bad = error(Errc::kNotFound, "no such thing");
  CHECK_FALSE(bad);
  CHECK(bad.error() == Status{Errc::kNotFound, "no such thing"});
  CHECK(Status{}.ok());
}

}  // namespace
}  // namespace headrace
