#include "tests/sim/mutants.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "protocol/check.h"
#include "protocol/slowdown.h"
#include "tests/sim/nccl_run.h"
#include "tests/sim/seeds.h"

namespace headrace::sim {
namespace {

std::string over_nccl() { return hunt_nccl(1, kSlowdown > 1 ? 100 : 1000); }

}  // namespace

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = {
      {Mistake::kFreeOnCancel, "free on cancel while the reader lives"},
      {Mistake::kRegrantEarly, "re-grant before the reader has stopped"},
      {Mistake::kHelloOfAnyAttempt, "hello not bound to the attempt",
       scene_hello_of_another_attempt},
      {Mistake::kHelloToAnyone, "hello not bound to the incarnation",
       scene_hello_to_another_incarnation},
      {Mistake::kDecodeUnverified, "decode without verifying the commit"},
      {Mistake::kTokensOfOldAttempt, "token accepted from an old attempt"},
      {Mistake::kNoLease, "no lease expiry", scene_lease_runs_out},
      {Mistake::kCrcBelieved, "the sender's CRC is believed"},
      {Mistake::kReadIncoming, "decode from the sender's hello on"},
      {Mistake::kNcclJoinAny, "NCCL: a lane not bound to its communicator", over_nccl},
      {Mistake::kNcclFreedEarly, "NCCL: freed before the reader stopped", over_nccl},
      {Mistake::kNcclRegrantEarly, "NCCL: re-grant before the abort is over", over_nccl},
      {Mistake::kNcclAnyOrder, "NCCL: conflicting launch order", over_nccl},
      {Mistake::kNcclOneSided, "NCCL: abort of one side only", over_nccl},
      {Mistake::kNcclIdUncounted, "NCCL: minted id leaked", over_nccl},
      {Mistake::kNcclMintEarly, "NCCL: id minted before both are ready", over_nccl},
      {Mistake::kNcclLossIgnored, "NCCL: an abort that hangs goes unnoticed", over_nccl},
      {Mistake::kNcclOpenForever, "NCCL: an init that hangs is waited for", over_nccl},
      {Mistake::kBlocksKept, "blocks of a failed attempt are kept"},
      {Mistake::kPreemptedKeepsCount, "preempted, yet taken for computed"},
      {Mistake::kIndexFromZero, "sampler index from 0 on a replay"},
      {Mistake::kCancelWhileInStep, "cancel lost while a step is in flight",
       scene_cancel_while_in_step},
      {Mistake::kWorkerSweepsOnce, "the worker's sweep is not armed again"},
      {Mistake::kPrefixUnchecked, "prefix hit without comparing tokens"},
      {Mistake::kEvictInUse, "a block in use is evicted"},
      {Mistake::kDrainForgets, "drain forgets a sequence"},
      {Mistake::kReplayWithoutLast, "a replay leaves out the newest token"},
      {Mistake::kReplayWithoutEnd, "a replay does not know the end tokens"},
      {Mistake::kEndedTwice, "two terminal records"},
      {Mistake::kCreditLost, "credit is not given back"},
      {Mistake::kGapTaken, "tokens behind a gap are taken"},
      {Mistake::kRepeatTaken, "repeated tokens are taken again"},
      {Mistake::kBookingKept, "bookings are not given back"},
      {Mistake::kSweepsOnce, "the coordinator's sweep is not armed again"},
      {Mistake::kDeadlineForgotten, "a request's deadline is not looked at",
       scene_deadline_without_worker},
      {Mistake::kResumeSkips, "a resumed stream leaves out a token"},
      {Mistake::kDeathIgnored, "a dead worker's requests wait for it"},
  };
  return all;
}

namespace {

constexpr unsigned kHuntSeconds = 300;  // a mutant that hangs is stopped, and caught by that

struct Shared {
  std::FILE* file = std::tmpfile();
  std::FILE* errors = std::tmpfile();
};

[[noreturn]] void tell(const Shared& shared, uint64_t seed, const std::string& what) {
  const std::string text = std::to_string(seed) + " " + what;
  const auto n = pwrite(fileno(shared.file), text.data(), text.size(), 0);
  _exit(n == static_cast<ssize_t>(text.size()) ? 0 : 3);
}

[[noreturn]] void run_there(const Shared& shared, const Mutant& mutant, uint64_t seeds,
                            const std::function<void(Mistake)>& plant) {
  dup2(fileno(shared.errors), STDERR_FILENO);
  // The test framework's handlers would write a report of their own.
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGALRM})
    std::signal(signal, SIG_DFL);
  alarm(kHuntSeconds);
  plant(mutant.mistake);
  if (mutant.scene) {
    if (const std::string wrong = mutant.scene(); !wrong.empty()) tell(shared, 0, wrong);
    _exit(0);
  }
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    char note[24] = {};
    std::snprintf(note, sizeof note, "%llu", static_cast<unsigned long long>(seed));
    if (pwrite(fileno(shared.file), note, sizeof note, 0) < 0) _exit(3);
    ClusterOptions options = options_of(seed);
    options.on_problem = [&](const std::string& what) { tell(shared, seed, what); };
    (void)run_cluster(options);
  }
  if (ftruncate(fileno(shared.file), 0) != 0) _exit(3);
  _exit(0);
}

std::string read_all(std::FILE* file) {
  std::string out;
  char buffer[1024];
  off_t at = 0;
  for (ssize_t n = 0; (n = pread(fileno(file), buffer, sizeof buffer, at)) > 0; at += n)
    out.append(buffer, static_cast<size_t>(n));
  std::fclose(file);
  return out.substr(0, out.find('\0'));
}

}  // namespace

Caught hunt(const Mutant& mutant, uint64_t seeds, const std::function<void(Mistake)>& plant) {
  const Shared shared;
  CHECK(shared.file != nullptr && shared.errors != nullptr);
  std::fflush(nullptr);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) run_there(shared, mutant, seeds, plant);
  int status = 0;
  waitpid(pid, &status, 0);
  const std::string told = read_all(shared.file);
  const std::string errors = read_all(shared.errors);
  Caught caught;
  caught.seed = std::strtoull(told.c_str(), nullptr, 10);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {  // as a sanitizer ends it
    const size_t what = errors.find("error: ");
    caught.assertion = what != std::string::npos
                           ? errors.substr(what, errors.find('\n', what) - what)
                           : "exit status " + std::to_string(WEXITSTATUS(status));
    return caught;
  }
  if (WIFEXITED(status)) {
    if (const size_t blank = told.find(' '); blank != std::string::npos)
      caught.assertion = told.substr(blank + 1);
    return caught;
  }
  const size_t check = errors.find("check failed");
  caught.assertion = check != std::string::npos
                         ? errors.substr(check, errors.find('\n', check) - check)
                         : std::string("died: ") + strsignal(WTERMSIG(status));
  return caught;
}

}  // namespace headrace::sim
