#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "protocol/result.h"

namespace headrace::cli {

// A process of this very program, started with other arguments. It dies when its parent does, has
// a process group of its own (so that Ctrl-C reaches the parent alone), no standard input, and
// writes its stderr into a pipe.
class Child {
 public:
  static constexpr const char* kThisProgram = "/proc/self/exe";
  // Must be called on a thread that lives as long as the child is to live.
  static Result<Child> start(std::string name, const std::vector<std::string>& arguments,
                             const std::string& program = kThisProgram);

  Child(Child&& o) noexcept;
  Child& operator=(Child&& o) noexcept;
  ~Child();  // closes the pipe; neither ends nor awaits the process

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  int output() const { return output_; }  // readable, non-blocking; -1 after its end was read

  // Whole lines that have arrived since; longer ones are cut at kLineMax.
  static constexpr size_t kLineMax = 4096;
  std::vector<std::string> read_lines();

  // The exit status as waitpid gives it, once the process has ended. Reaps it.
  bool ended(int& status);
  void signal(int number) const;

 private:
  Child(std::string name, pid_t pid, int output)
      : name_(std::move(name)), pid_(pid), output_(output) {}

  std::string name_;
  pid_t pid_ = -1;  // -1 after it was reaped
  int output_ = -1;
  std::string partial_;  // a line whose end has not come
};

// "was killed by signal 9 (Killed)", "ended with status 1".
std::string describe_exit(int status);

// How long to wait before the next start of something that keeps dying: 0.2 s, doubled each time
// up to 5 s, from the beginning again after it lived for 10 s.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirst{200};
  static constexpr std::chrono::milliseconds kMax{5000};
  static constexpr auto kGoodLife = std::chrono::seconds(10);

  std::chrono::milliseconds next(Clock::duration lived);

 private:
  std::chrono::milliseconds delay_{0};
};

}  // namespace headrace::cli
