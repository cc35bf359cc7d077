#include "deploy/cli/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "deploy/cli/output.h"
#include "protocol/check.h"

namespace headrace::cli {

Supervisor::Supervisor(std::string program) : program_(std::move(program)) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, number);
  CHECK(sigprocmask(SIG_BLOCK, &set, nullptr) == 0);
  signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK(signals_ >= 0);
}

Supervisor::~Supervisor() {
  for (auto& kept : kept_) {
    if (!kept.child || kept.child->pid() < 0) continue;
    kept.child->signal(SIGKILL);
    int status = 0;
    waitpid(kept.child->pid(), &status, 0);
  }
  close(signals_);
}

Status Supervisor::add(std::string name, std::vector<std::string> arguments) {
  auto child = Child::start(name, arguments, program_);
  if (!child) return child.error();
  kept_.push_back(
      {std::move(name), std::move(arguments), std::move(*child), Clock::now(), Backoff()});
  return {};
}

void Supervisor::stop(int status) {
  if (stopping_) return;
  status_ = status;
  stopping_ = Clock::now() + drain_ + kStopWithin;
  if (!kept_.empty() && kept_.front().child) kept_.front().child->signal(SIGTERM);
}

void Supervisor::stop_rest() {
  if (rest_told_ || kept_.front().child) return;
  rest_told_ = true;
  for (auto& kept : kept_) {
    if (kept.child) kept.child->signal(SIGTERM);
  }
}

bool Supervisor::alive() const {
  for (const auto& kept : kept_) {
    if (kept.child) return true;
  }
  return false;
}

int Supervisor::run() {
  while (!stopping_ || alive()) {
    wait_for_events();
    take_signals();
    for (auto& kept : kept_) {
      relay(kept);
      reap(kept);
      if (!kept.child && !stopping_ && Clock::now() >= kept.since) start(kept);
    }
    if (stopping_) stop_rest();
    if (stopping_ && Clock::now() >= *stopping_) {
      for (auto& kept : kept_) {
        if (kept.child) kept.child->signal(SIGKILL);
      }
    }
    if (!stopping_ && on_tick) on_tick();
  }
  return status_;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> watched{{signals_, POLLIN, 0}};
  for (const auto& kept : kept_) {
    if (kept.child && kept.child->output() >= 0) {
      watched.push_back({kept.child->output(), POLLIN, 0});
    }
  }
  poll(watched.data(), watched.size(), static_cast<int>(kTick.count()));
}

void Supervisor::take_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    if (++signalled_ == 2 && stopping_) hurry();
    if (signalled_ > 2) stopping_ = Clock::now();
    stop(kExitOk);
  }
}

void Supervisor::hurry() {
  stopping_ = std::min(*stopping_, Clock::now() + kStopWithin);
  auto& first = kept_.front();
  if (first.child) return first.child->signal(SIGTERM);
  for (auto& kept : kept_) {
    if (kept.child) kept.child->signal(SIGTERM);
  }
}

pid_t Supervisor::pid(std::string_view name) const {
  for (const auto& kept : kept_) {
    if (kept.name == name && kept.child) return kept.child->pid();
  }
  return -1;
}

void Supervisor::kill(std::string_view name) {
  for (auto& kept : kept_) {
    if (kept.name == name && kept.child) kept.child->signal(SIGKILL);
  }
}

void Supervisor::relay(Kept& kept) {
  if (!kept.child) return;
  for (const std::string& line : kept.child->read_lines()) {
    if (!line.empty() && line[0] == '@') {
      if (on_marker) on_marker(kept.name, std::string_view(line).substr(1));
      continue;
    }
    constexpr std::string_view kOwn = "headrace: ";
    const bool own = line.compare(0, kOwn.size(), kOwn) == 0;
    say(kept.name + ": " + (own ? line.substr(kOwn.size()) : line));
  }
}

void Supervisor::reap(Kept& kept) {
  int status = 0;
  if (!kept.child || !kept.child->ended(status)) return;
  relay(kept);  // its last words
  kept.child.reset();
  if (stopping_) return;
  if (!up_ && WIFEXITED(status)) {
    say(kept.name + " " + describe_exit(status) + "; stopping");
    return stop(kExitFailed);
  }
  const auto delay = kept.backoff.next(Clock::now() - kept.since);
  kept.since = Clock::now() + delay;
  char seconds[16];
  std::snprintf(seconds, sizeof seconds, "%.1f", static_cast<double>(delay.count()) / 1000);
  say(kept.name + " " + describe_exit(status) + "; starting it again in " + seconds + " s");
}

void Supervisor::start(Kept& kept) {
  auto child = Child::start(kept.name, kept.arguments, program_);
  if (child) {
    kept.child = std::move(*child);
    kept.since = Clock::now();
  } else {
    say(child.error().message);
    kept.since = Clock::now() + kept.backoff.next(Clock::duration::zero());
  }
}

}  // namespace headrace::cli
