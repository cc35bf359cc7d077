#include "coordinator/text_log.h"
#include "protocol/codec.h"
#include "tests/coordinator/text_support.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
namespace {

std::shared_ptr<const TextModel> script_model() {
  return value_of(make_text_model(encode(script_data())));
}

std::vector<Token> bytes(std::string_view text) {
  std::vector<Token> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace

TEST_CASE("the same range gives the same text, whenever it is asked for") {
  TextLog log(script_model()->cutter(), {});
  const auto ids = bytes(
      "a\xF0\x9F\xA6\x99"
      "b\xE4");
  CHECK(log.append(ids) == ids.size());
  CHECK(log.piece(0, 1) == "a");
  CHECK(log.piece(1, 4).empty());  // inside of a character
  CHECK(log.piece(4, 6) ==
        "\xF0\x9F\xA6\x99"
        "b");
  CHECK(log.piece(0, 7) ==
        "a\xF0\x9F\xA6\x99"
        "b");
  CHECK(log.piece(7, 7).empty());
  log.finish();
  CHECK(log.tail() == "\xEF\xBF\xBD");
  CHECK(log.tokens() == 7);
}

TEST_CASE("tokens behind the one that completes a stop text are not taken") {
  TextLog log(script_model()->cutter(), StopText({"N", "xyz"}, false));
  const std::vector<Token> ids = {'A', 260, 'B'};  // "END" is one token
  CHECK(log.append(ids) == 2);
  CHECK(log.stopped());
  CHECK(log.piece(0, 2) == "AE");
  CHECK(log.append(ids) == 0);
  log.finish();
  CHECK(log.tail().empty());
}

TEST_CASE("what may become a stop text is the tail if it does not") {
  TextLog log(script_model()->cutter(), StopText({"GHI"}, false));
  CHECK(log.append(bytes("BCDEFG")) == 6);
  CHECK(log.piece(0, 6) == "BCDEF");
  log.finish();
  CHECK(log.tail() == "G");
  CHECK_FALSE(log.stopped());
  // A broken character at the end may be what is looked for.
  TextLog broken(script_model()->cutter(), StopText({"\xEF\xBF\xBD"}, false));
  CHECK(broken.append(bytes("a\xE4")) == 2);
  broken.finish();
  CHECK(broken.tail().empty());
  CHECK(broken.stopped());
}

}  // namespace headrace::coordinator
