#include "deploy/cli/supervisor.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <utility>

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

TEST_CASE("a signal stops the first child, then the others") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  std::vector<std::string> order;
  int up = 0;
  supervisor.on_marker = [&](std::string_view child, std::string_view words) {
    if (words == "up" && ++up == 2) raise(SIGTERM);
    if (words == "bye") order.push_back(std::string(child));
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  const auto polite = script(
      "trap 'sleep 0.2; echo @bye >&2; exit 0' TERM; echo @up >&2; while :; do sleep 0.05; done");
  CHECK(supervisor.add("first", polite).ok());
  CHECK(supervisor.add("second", polite).ok());
  CHECK(supervisor.run() == 0);
  CHECK(order == std::vector<std::string>{"first", "second"});
  CHECK(errors.text().empty());
}

TEST_CASE("what does not listen to a signal is killed; a third one does it at once") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  supervisor.set_drain(60s);
  supervisor.on_marker = [&](std::string_view, std::string_view words) {
    if (words == "up" || words == "deaf") raise(SIGTERM);
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(supervisor
            .add("deaf", script("trap 'echo @deaf >&2' TERM; echo @up >&2; while :; do sleep 0.1; "
                                "done"))
            .ok());
  const auto begun = Clock::now();
  CHECK(supervisor.run() == 0);  // of 60 s for its work nothing is left after the third
  CHECK(Clock::now() - begun < 30s);
}

TEST_CASE("a second signal hurries: the first child hears it once more") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  supervisor.set_drain(60s);
  std::vector<std::string> order;
  int up = 0;
  bool hurried = false;
  supervisor.on_marker = [&](std::string_view child, std::string_view words) {
    if (words == "up" && ++up == 2) raise(SIGTERM);
    if (words == "once" && !std::exchange(hurried, true)) raise(SIGHUP);
    if (words == "bye") order.push_back(std::string(child));
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(
      supervisor
          .add("first", script("n=0; trap 'n=$((n+1)); echo @once >&2; [ $n = 2 ] && { echo @bye "
                               ">&2; exit 0; }' TERM; echo @up >&2; while :; do sleep 0.05; done"))
          .ok());
  CHECK(supervisor
            .add("second",
                 script("trap 'echo @bye >&2; exit 0' TERM; echo @up >&2; while :; do sleep 0.05; "
                        "done"))
            .ok());
  const auto begun = Clock::now();
  CHECK(supervisor.run() == 0);
  CHECK(Clock::now() - begun < 30s);
  REQUIRE(!order.empty());
  CHECK(order.front() == "first");
}

TEST_CASE("a child that is killed by name is started again") {
  Capture errors(STDERR_FILENO);
  Supervisor supervisor("/bin/sh");
  supervisor.up();
  pid_t before = -1;
  supervisor.on_marker = [&](std::string_view child, std::string_view) {
    if (before > 0) return supervisor.stop(0);
    before = supervisor.pid(child);
    CHECK(before > 0);
    supervisor.kill(child);
  };
  Guard guard{supervisor};
  supervisor.on_tick = [&] { guard.check(); };
  CHECK(supervisor.pid("w") == -1);
  CHECK(supervisor.add("w", script("echo @here >&2; exec sleep 60")).ok());
  CHECK(supervisor.run() == 0);
  CHECK(errors.text().find("starting it again") != std::string::npos);
}

}  // namespace
}  // namespace headrace::cli
