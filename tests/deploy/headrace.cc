#include "tests/deploy/headrace.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace headrace::cli {

namespace {

std::string contents(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char piece[65536];
  while (const size_t n = std::fread(piece, 1, sizeof piece, file)) text.append(piece, n);
  std::fclose(file);
  return text;
}

}  // namespace

bool Outcome::one_error(const std::string& part) const {
  return err.starts_with("headrace: ") && err.find('\n') == err.size() - 1 &&
         err.find(part) != err.npos;
}

Outcome headrace(const std::vector<std::string>& arguments, const std::string& input) {
  std::FILE* in = std::tmpfile();
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  std::fwrite(input.data(), 1, input.size(), in);
  std::rewind(in);
  std::vector<std::string> words{"headrace"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  setenv("XDG_STATE_HOME", HEADRACE_TEST_STATE, 1);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(fileno(in), STDIN_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    execv(HEADRACE_BINARY, argv.data());
    _exit(126);
  }
  Outcome outcome;
  int status = 0;
  constexpr int kTries = 6000;
  for (int i = 0; i < kTries; ++i) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (i + 1 == kTries) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
  }
  std::fclose(in);
  outcome.out = contents(out);
  outcome.err = contents(err);
  return outcome;
}

std::string test_model(const std::string& name) { return HEADRACE_TEST_MODELS "/" + name; }

}  // namespace headrace::cli
