#include "protocol/check.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace headrace {
namespace {

TEST_CASE("a kept condition is evaluated once and does nothing") {
  int evaluated = 0;
  HEADRACE_CHECK(++evaluated == 1);
  CHECK(evaluated == 1);
}

TEST_CASE("a broken one names itself and aborts") {
  int out[2];
  REQUIRE(pipe(out) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    dup2(out[1], STDERR_FILENO);
    HEADRACE_CHECK(1 == 2);
    _exit(0);
  }
  close(out[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n = 0; (n = read(out[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(out[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK(text.find("check_test.cc:") != std::string::npos);
  CHECK(text.find(": check failed: 1 == 2\n") != std::string::npos);
}

}  // namespace
}  // namespace headrace
