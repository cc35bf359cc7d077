#include "deploy/cli/line_writer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <thread>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kPage = 4096;  // the least that a pipe holds

struct Pipe {
  Pipe() {
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    REQUIRE(fcntl(ends[1], F_SETPIPE_SZ, kPage) >= 0);
  }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  // All until `last` came, or until nobody has the other end.
  std::string read_until(const std::string& last) {
    std::string all;
    char piece[kPage];
    ssize_t n;
    while (all.find(last) == std::string::npos && (n = read(ends[0], piece, sizeof piece)) > 0)
      all.append(piece, static_cast<size_t>(n));
    return all;
  }
  int ends[2];
};

TEST_CASE("nobody reads: no write waits, and once someone does each line is there or counted") {
  Pipe pipe;
  LineWriter writer(pipe.ends[1]);
  constexpr int kLines = 10'000;
  for (int i = 0; i < kLines; ++i) writer.write("line " + std::to_string(i) + "\n");
  CHECK_FALSE(writer.flush(1ms));
  std::string all;
  std::thread reader([&] { all = pipe.read_until("after\n"); });
  CHECK(writer.flush(10s));
  writer.write("after\n");
  reader.join();
  std::istringstream text(all);
  int next = 0, written = 0;
  for (std::string line; std::getline(text, line) && line != "after";) {
    int left_out = 0;
    if (line == "line " + std::to_string(next)) {
      ++next;
      ++written;
    } else if (std::sscanf(line.c_str(), "headrace: %d lines were left out", &left_out) == 1) {
      next += left_out;
    } else {
      FAIL("out of order, or in part: " << line);
    }
  }
  CHECK(next == kLines);
  CHECK(written >= static_cast<int>(LineWriter::kWaitingMax));
  CHECK(written < kLines);
}

TEST_CASE("long lines have a limit of their own") {
  Pipe pipe;
  LineWriter writer(pipe.ends[1]);
  const std::string line = std::string(LineWriter::kBytesMax / 4, 'x') + "\n";
  for (int i = 0; i < 20; ++i) writer.write(line);
  const std::string all = pipe.read_until("limit\n");
  CHECK(all.find(" lines were left out") != std::string::npos);
  CHECK(all.size() < 2 * LineWriter::kBytesMax + kPage);
}

TEST_CASE("it ends though a write is stuck") {
  Pipe pipe;
  {
    LineWriter writer(pipe.ends[1]);
    writer.write(std::string(3 * kPage, 'x'));
  }
  CHECK(pipe.read_until("x").size() == kPage);
}

TEST_CASE("a descriptor that somebody made non-blocking loses nothing") {
  Pipe pipe;
  REQUIRE(fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK) == 0);
  LineWriter writer(pipe.ends[1]);
  writer.write(std::string(3 * kPage, 'x') + "\n");
  CHECK(pipe.read_until("\n").size() == 3 * kPage + 1);
}

// The program itself, its stderr a full pipe that nobody reads: it would hang in its first line.
TEST_CASE("a coordinator whose log nobody reads answers, and SIGTERM ends it") {
  Pipe pipe;
  REQUIRE(fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK) == 0);
  while (write(pipe.ends[1], "x", 1) == 1) {
  }
  REQUIRE(fcntl(pipe.ends[1], F_SETFL, 0) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe.ends[1], STDERR_FILENO);
    execl(HEADRACE_BINARY, "headrace", "coordinator", "--listen", "127.0.0.1:17471", "--mesh",
          "127.0.0.1:17472", "--metrics", "none", static_cast<char*>(nullptr));
    _exit(127);
  }
  bool answered = false;
  for (int i = 0; i < 100 && !answered; ++i) {
    const Outcome seen = headrace({"status", "--connect", "127.0.0.1:17471", "--json"});
    answered = seen.json().contains("ready");
    if (!answered) std::this_thread::sleep_for(50ms);
  }
  CHECK(answered);
  kill(child, SIGTERM);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 400 && ended == 0; ++i) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(50ms);
  }
  CHECK(ended == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
}

}  // namespace
}  // namespace headrace::cli
