#include "deploy/cli/link_pairs.h"

#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

LinkOptions small() {
  LinkOptions options;
  options.mib = 2;
  return options;
}

TEST_CASE("two processes test the link between them; without GPUs it is tcp, and why") {
  const auto link = test_pair("cpu:portable", "cpu:portable", small(), HEADRACE_BINARY);
  CAPTURE(link.dump());
  CHECK(link.value("tcp_bytes_per_second", 0.0) > 0);
  CHECK(!link.contains("nccl_bytes_per_second"));
  CHECK(link.value("why", "") == "the device here is no GPU");
  CHECK(link_text(link).starts_with("tcp "));
}

TEST_CASE("a pair that cannot be tested says why, whichever end it is") {
  const std::string here = test_pair("cuda:9", "cpu", small(), HEADRACE_BINARY).value("error", "");
  CHECK(here.find("--device cuda:9: ") != std::string::npos);
  const auto there = test_pair("cpu", "cuda:9", small(), HEADRACE_BINARY);
  CHECK(link_text(there).find("--device cuda:9: ") != std::string::npos);
  CHECK(test_pair("cpu", "cpu", small(), "/bin/true").value("error", "") == "it says nothing");
}

TEST_CASE("lines of a link") {
  CHECK(link_text({{"tcp_bytes_per_second", 2e9}, {"nccl_bytes_per_second", 2.5e11}}) ==
        "NCCL 250.00 GB/s, tcp 2.00 GB/s");
  CHECK(link_text({{"tcp_bytes_per_second", 2e9}, {"why", "x"}}) == "tcp 2.00 GB/s; no NCCL: x");
  CHECK(link_text({{"error", "y"}}) == "no hand-off: y");
}

TEST_CASE("a peer: nobody there, and an end that is open to the network") {
  const Outcome nobody =
      headrace({"doctor", "--peer", "127.0.0.1:9", "--device", "cpu", "--link-mib", "1"});
  CHECK(nobody.status == 1);
  CHECK(nobody.out.find("127.0.0.1:9") != std::string::npos);
  const Outcome open = headrace({"doctor", "--answer", "0.0.0.0:0", "--device", "cpu"});
  CHECK(open.status == 2);
  CHECK(open.one_error("--insecure-mesh"));
  CHECK(headrace({"doctor", "--peer", "127.0.0.1:9", "--link-mib", "0"}).status == 2);
}

}  // namespace
}  // namespace headrace::cli
