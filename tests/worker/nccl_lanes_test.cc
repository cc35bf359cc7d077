#include "worker/nccl_lanes.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>

#include "tests/worker/queue_strand.h"

namespace headrace::worker {
namespace {

TEST_CASE("without a library: no lanes, and a start that says so") {
  SeededRandom random(1);
  NcclLanesOptions options;
  options.library.path = "no-such-library.so";
  const auto lanes = make_nccl_lanes(std::make_shared<QueueStrand>(), random, options);
  REQUIRE(!lanes.has_value());
  const std::string said = nccl_sentence(lanes, options);
  CHECK(said.find("tcp") != std::string::npos);
  CHECK(said.find(lanes.error().message) != std::string::npos);
}

TEST_CASE("a machine's number is its boot's; of nothing there is none") {
  CHECK(host_number() == host_number());
  CHECK(host_number("/no/such/file") == 0);
  const std::string path = "nccl_lanes_test.boot_id";
  std::ofstream(path) << "one\n";
  const uint64_t one = host_number(path);
  std::ofstream(path) << "two\n";
  CHECK(one != 0);
  CHECK(host_number(path) != one);
  std::ofstream(path).flush();
  CHECK(host_number(path) == 0);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace headrace::worker
