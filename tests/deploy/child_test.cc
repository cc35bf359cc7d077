#include "deploy/cli/child.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <thread>

namespace headrace::cli {
namespace {

using namespace std::chrono_literals;

// Waits (10 s at most) for the end; collects the lines.
int await(Child& child, std::vector<std::string>& lines) {
  int status = -1;
  for (int i = 0; i < 1000; ++i) {
    for (auto& line : child.read_lines()) lines.push_back(line);
    if (child.ended(status)) {
      for (auto& line : child.read_lines()) lines.push_back(line);
      return status;
    }
    std::this_thread::sleep_for(10ms);
  }
  child.signal(SIGKILL);
  FAIL("the child did not end");
  return status;
}

Child shell(const std::string& script) {
  auto child = Child::start("sh", {"-c", script}, "/bin/sh");
  REQUIRE(child);
  return std::move(*child);
}

TEST_CASE("lines of stderr arrive whole, the status as it was") {
  Child child = shell("echo one >&2; printf 'tw' >&2; sleep 0.1; printf 'o\nend' >&2; exit 3");
  std::vector<std::string> lines;
  const int status = await(child, lines);
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(lines == std::vector<std::string>{"one", "two", "end"});
  CHECK(child.pid() == -1);
  CHECK(child.output() == -1);
  child.signal(SIGKILL);  // to nobody
}

TEST_CASE("a line without end is cut") {
  Child child = shell("head -c 100000 /dev/zero | tr '\\0' x >&2");
  std::vector<std::string> lines;
  await(child, lines);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].size() == Child::kLineMax);
}

TEST_CASE("a child has its own group, no stdin and none of our options") {
  setenv("HEADRACE_LISTEN", "1.2.3.4:5", 1);
  Child child =
      shell("read x && echo stdin >&2; echo \"[$HEADRACE_LISTEN]\" >&2; kill -TERM 0; sleep 60");
  unsetenv("HEADRACE_LISTEN");
  std::vector<std::string> lines;
  const int status = await(child, lines);  // the signal reached the child's group, not us
  CHECK(WTERMSIG(status) == SIGTERM);
  CHECK(lines == std::vector<std::string>{"[]"});
}

TEST_CASE("a child dies with its parent") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto child = Child::start("sh", {"-c", "sleep 60"}, "/bin/sh");
    const pid_t pid = child ? child->pid() : -1;
    [[maybe_unused]] const auto n = write(ends[1], &pid, sizeof pid);
    _exit(0);
  }
  pid_t pid = -1;
  REQUIRE(read(ends[0], &pid, sizeof pid) == static_cast<ssize_t>(sizeof pid));
  int status = 0;
  waitpid(parent, &status, 0);
  REQUIRE(pid > 0);
  bool gone = false;
  for (int i = 0; i < 1000 && !gone; ++i) {
    // A zombie whose new parent does not reap it is as dead.
    std::string path = "/proc/" + std::to_string(pid) + "/cmdline";
    std::FILE* file = std::fopen(path.c_str(), "r");
    gone = file == nullptr || std::fgetc(file) == EOF;
    if (file != nullptr) std::fclose(file);
    std::this_thread::sleep_for(10ms);
  }
  CHECK(gone);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a program that is not there ends with status 127") {
  auto child = Child::start("none", {}, "/nonexistent/program");
  REQUIRE(child);
  std::vector<std::string> lines;
  CHECK(WEXITSTATUS(await(*child, lines)) == 127);
}

TEST_CASE("exits in words") {
  CHECK(describe_exit(3 << 8) == "ended with status 3");
  CHECK(describe_exit(SIGKILL) == "was killed by signal 9 (Killed)");
}

TEST_CASE("back-off doubles to its limit and forgets after a good life") {
  Backoff backoff;
  std::vector<int64_t> delays;
  for (int i = 0; i < 7; ++i) delays.push_back(backoff.next(1s).count());
  CHECK(delays == std::vector<int64_t>{200, 400, 800, 1600, 3200, 5000, 5000});
  CHECK(backoff.next(10s).count() == 200);
  CHECK(backoff.next(1s).count() == 400);
}

}  // namespace
}  // namespace headrace::cli
