#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/simt/fiber.h"
#include "tests/simt/launch.h"
#include "tests/simt/thread.h"

namespace headrace::simt {

class Block;

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kBlockThreadsMax = 1024;

// One launch in progress. The words are addresses for the sanitizer alone.
struct Grid {
  const Launch& launch;
  Grid* front = nullptr;  // a dependent launch may begin before this one has ended
  bool complete = false;
  char begin_word = 0;
  char end_word = 0;
};

// One emulated thread. It runs on its own fiber; whatever concerns other threads it asks of the
// scheduler, which runs on the stack of run_grid's caller.
struct Lane {
  enum class State : uint8_t { kRunning, kReady, kWaiting, kParked, kEnded };

  Fiber fiber;
  Block* block = nullptr;
  unsigned index = 0;  // linear thread index
  uint3 thread{};
  Here here;
  State state = State::kEnded;
  const char* where = "";  // the call it is in, for reports
  Site at;

  // cp.async: copies not yet waited for, and where each committed group ends in them.
  std::vector<HeldCopy> copies;
  std::vector<size_t> groups;
  size_t copies_taken = 0;
  bool copying = false;  // take_copy gave it one, which it does now
  char issue_word = 0;   // for the sanitizer: all that was done before a copy was issued, ...
  char done_word = 0;    // ... and the copies waited for

  const uint64_t* bar = nullptr;  // waits for this barrier's phase of this parity
  uint32_t parity = 0;

  // Pauses the lane while the scheduler runs `what`, which may set the state; a lane that is still
  // kRunning then goes on at once.
  template <class What>
  void ask(const char* call, Site site, What&& what) {
    where = call;
    at = site;
    request_ = [](void* argument) { (*static_cast<std::remove_reference_t<What>*>(argument))(); };
    argument_ = &what;
    fiber.pause();
  }
  void answer() { request_(argument_); }

 private:
  void (*request_)(void*) = nullptr;
  void* argument_ = nullptr;
};

// What ends a grid early: thrown by the scheduler, never on a lane's fiber.
struct FaultError {
  std::string what;
};

std::string to_string(Site site);  // "gemv.cu:40"
// "gemv, block 3, thread 17, gemv.cu:40: " and what.
FaultError fault(const Lane& lane, Site at, const std::string& what);

bool same_line(Site a, Site b);

// The lane that runs; only on its fiber.
extern Lane* running;

}  // namespace headrace::simt
