#include "deploy/cli/supervisor.h"

#include <doctest/doctest.h>
#include <signal.h>

#include "tests/deploy/capture.h"

namespace headrace::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Ends a test that hangs.
struct Guard {
  Supervisor& supervisor;
  Clock::time_point end = Clock::now() + 30s;
  void check() {
    if (Clock::now() > end) supervisor.stop(99);
  }
};

std::vector<std::string> script(const std::string& text) { return {"-c", text}; }

TEST_CASE("lines are relayed with the child's name, markers are not shown") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  std::vector<std::string> markers;
  supervisor.on_marker = [&](std::string_view child, std::string_view words) {
    markers.push_back(std::string(child) + ":" + std::string(words));
    supervisor.stop(0);
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(supervisor
            .add("a", script("echo 'headrace: hi' >&2; echo plain >&2; echo '@load 0.5' >&2; "
                             "exec sleep 60"))
            .ok());
  CHECK(supervisor.run() == 0);
  CHECK(errors.text() == "headrace: a: hi\nheadrace: a: plain\n");
  CHECK(markers == std::vector<std::string>{"a:load 0.5"});
}

TEST_CASE("what ends by itself before all is up ends all") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(supervisor.add("good", script("exec sleep 60")).ok());
  CHECK(supervisor.add("bad", script("echo no model >&2; exit 1")).ok());
  CHECK(supervisor.run() == 1);
  CHECK(errors.text() == "headrace: bad: no model\nheadrace: bad ended with status 1; stopping\n");
}

TEST_CASE("what dies later is started again, and said in one line") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  supervisor.up();
  int starts = 0;
  supervisor.on_marker = [&](std::string_view, std::string_view) {
    if (++starts == 3) supervisor.stop(0);
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(supervisor.add("w", script("echo @here >&2; kill -9 $$")).ok());
  CHECK(supervisor.run() == 0);
  CHECK(errors.text() ==
        "headrace: w was killed by signal 9 (Killed); starting it again in 0.2 s\n"
        "headrace: w was killed by signal 9 (Killed); starting it again in 0.4 s\n");
}

TEST_CASE("a signal stops all cleanly; what does not listen is killed") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  int signals = 0;
  bool stubborn = false, polite = false;
  supervisor.on_marker = [&](std::string_view, std::string_view words) {
    stubborn = stubborn || words == "stubborn";
    polite = polite || words == "polite";
    if (stubborn && polite && signals++ == 0) raise(SIGTERM);
    if (words == "bye") raise(SIGINT);  // the second: at once
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(
      supervisor.add("deaf", script("trap '' TERM; echo @stubborn >&2; while :; do sleep 1; done"))
          .ok());
  CHECK(supervisor
            .add("good", script("trap 'echo @bye >&2; exit 0' TERM; echo @polite >&2; "
                                "while :; do sleep 0.05; done"))
            .ok());
  const auto begun = Clock::now();
  CHECK(supervisor.run() == 0);
  CHECK(Clock::now() - begun < Supervisor::kStopWithin);
  CHECK(errors.text().empty());
}

}  // namespace
}  // namespace headrace::cli
