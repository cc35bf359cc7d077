#include "deploy/cli/link_end.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

TEST_CASE("blocks of a processor go to another end over tcp, again and again") {
  const auto answers = LinkEnd::open("cpu:portable", {}, 3);
  const auto sends = LinkEnd::open("cpu:portable", {}, 3);
  REQUIRE(answers);
  REQUIRE(sends);
  const auto at = (*answers)->answer({"127.0.0.1", 0});
  REQUIRE(at);
  for (const bool lanes : {false, true, true}) {
    const auto sent = (*sends)->send(*at, lanes);
    REQUIRE_MESSAGE(sent, (sent ? "" : sent.error().message));
    CHECK(!sent->nccl);
    CHECK(sent->bytes == uint64_t{3} << 20);
    CHECK(sent->seconds > 0);
  }
}

TEST_CASE("nobody there, or one that expects another number of blocks, is an error in words") {
  const auto answers = LinkEnd::open("cpu:portable", {}, 2);
  const auto sends = LinkEnd::open("cpu:portable", {}, 3);
  REQUIRE(answers);
  REQUIRE(sends);
  const auto at = (*answers)->answer({"127.0.0.1", 0});
  REQUIRE(at);
  CHECK(!(*sends)->send(*at, false));
  CHECK((*answers)->answer(*at).error().message.find(to_string(*at)) != std::string::npos);
  const auto nobody = (*sends)->send({"127.0.0.1", 9}, false);
  REQUIRE(!nobody);
  CHECK(nobody.error().message.find("127.0.0.1:9") != std::string::npos);
}

TEST_CASE("a device that is not there") {
  CHECK(LinkEnd::open("cuda:9", {}, 1).error().message.starts_with("--device cuda:9: "));
  TransportOptions nccl;
  nccl.handoff = "nccl";
  CHECK(LinkEnd::open("cpu", nccl, 1).error().message.starts_with("--handoff nccl "));
}

}  // namespace
}  // namespace headrace::cli
