#include "deploy/cli/output.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <future>

#include "tests/deploy/capture.h"

namespace headrace::cli {
namespace {

TEST_CASE("an outcome is one line and a status") {
  Capture errors(STDERR_FILENO);
  CHECK(fail(error(Errc::kInvalid, "no such\nthing")) == kExitFailed);
  CHECK(fail(error(Errc::kDeadline, "")) == kExitFailed);
  CHECK(fail_usage("unknown option --x") == kExitUsage);
  CHECK(errors.text() ==
        "headrace: no such thing\nheadrace: " + std::string(name(Errc::kDeadline)) +
            "\nheadrace: unknown option --x\n");
}

TEST_CASE("nothing that is said moves a terminal, and all of it is text") {
  Capture errors(STDERR_FILENO);
  say("a\x1b[2Jb\rc \xff\xc3\xa9 \xc3");
  CHECK(errors.text() == "headrace: a?[2Jb?c ?\xc3\xa9 ?\n");
}

TEST_CASE("a reader of stdout that goes away is noticed without a write") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(stdout);
  const int kept = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  std::promise<void> gone;
  const bool before = stdout_works();
  {
    OutputWatch unneeded([] {});  // ends while the reader is there
  }
  {
    const OutputWatch watch([&gone] { gone.set_value(); });
    close(ends[0]);
    gone.get_future().wait();
  }
  const bool after = stdout_works();
  dup2(kept, STDOUT_FILENO);
  close(ends[1]);
  close(kept);
  CHECK(before);
  CHECK(!after);
}

TEST_CASE("JSON keeps its order and is always UTF-8") {
  Capture out(STDOUT_FILENO);
  print_json({{"z", 1}, {"a", "b\xff"}});
  CHECK(out.text() == "{\"z\":1,\"a\":\"b\xef\xbf\xbd\"}\n");
}

TEST_CASE("digests and sizes as people read them") {
  CHECK(hex(Digest{1, 0xabc}) == "00000000000000010000000000000abc");
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(1000) == "1.00 kB");
  CHECK(human_bytes(102553856) == "103 MB");
  CHECK(human_bytes(12.34e9) == "12.3 GB");
  CHECK(human_bytes(999.9e6) == "1.00 GB");
}

TEST_CASE("progress off a terminal is quiet, for a supervisor it is one line a hundredth") {
  Capture errors(STDERR_FILENO);
  ProgressBar quiet("loading", false);
  quiet.show(0.5);
  ProgressBar machine("loading", true);
  machine.show(0);
  machine.show(0.001);
  machine.show(0.5);
  machine.show(7);
  CHECK(errors.text() == "@load 0.00\n@load 0.50\n@load 1.00\n");
}

}  // namespace
}  // namespace headrace::cli
