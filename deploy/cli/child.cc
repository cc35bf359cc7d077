#include "deploy/cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

extern char** environ;

namespace headrace::cli {

namespace {

// Options may also come from the environment; the child gets only what it is given by its parent.
bool inherited(const char* variable) {
  constexpr char kPrefix[] = "HEADRACE_";
  return std::strncmp(variable, kPrefix, sizeof kPrefix - 1) != 0;
}

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment,
                         int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
  }
  dup2(output, STDERR_FILENO);
  execve(program, arguments, environment);
  _exit(127);
}

}  // namespace

Result<Child> Child::start(std::string name, const std::vector<std::string>& arguments,
                           const std::string& program) {
  std::vector<std::string> words{"headrace"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (char** v = environ; *v != nullptr; ++v) {
    if (inherited(*v)) envp.push_back(*v);
  }
  envp.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return error(Errc::kInternal, "cannot start " + name + ": " + std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(program.c_str(), argv.data(), envp.data(), ends[1], parent);
  const int failure = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return error(Errc::kInternal, "cannot start " + name + ": " + std::strerror(failure));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Child(std::move(name), pid, ends[0]);
}

Child::Child(Child&& o) noexcept
    : name_(std::move(o.name_)),
      pid_(std::exchange(o.pid_, -1)),
      output_(std::exchange(o.output_, -1)),
      partial_(std::move(o.partial_)) {}

Child& Child::operator=(Child&& o) noexcept {
  std::swap(name_, o.name_);
  std::swap(pid_, o.pid_);
  std::swap(output_, o.output_);
  std::swap(partial_, o.partial_);
  return *this;
}

Child::~Child() {
  if (output_ >= 0) close(output_);
}

std::vector<std::string> Child::read_lines() {
  std::vector<std::string> lines;
  char piece[4096];
  while (output_ >= 0) {
    const ssize_t n = read(output_, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    if (n == 0) {
      close(std::exchange(output_, -1));
      if (!partial_.empty()) lines.push_back(std::exchange(partial_, {}));
      break;
    }
    for (const char c : std::string_view(piece, static_cast<size_t>(n))) {
      if (c == '\n') {
        lines.push_back(std::exchange(partial_, {}));
      } else if (partial_.size() < kLineMax) {
        partial_ += c;
      }
    }
  }
  return lines;
}

bool Child::ended(int& status) {
  if (pid_ < 0 || waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

void Child::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

std::chrono::milliseconds Backoff::next(Clock::duration lived) {
  const bool anew = lived >= kGoodLife || delay_.count() == 0;
  delay_ = anew ? kFirst : std::min(delay_ * 2, kMax);
  return delay_;
}

}  // namespace headrace::cli
