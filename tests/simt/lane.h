#pragma once

#include <cstring>
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

// One emulated thread, on its own fiber. Whatever concerns other threads goes through ask().
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

  // Runs `what`, which may set the state and may throw FaultError; returns when the lane is
  // kRunning again.
  template <class What>
  void ask(const char* call, Site site, What&& what) {
    where = call;
    at = site;
    request = [](void* of) { (*static_cast<std::remove_reference_t<What>*>(of))(); };
    argument = &what;
    serve();
  }
  void serve();
  void (*request)(void*) = nullptr;
  void* argument = nullptr;
};

// What ends a grid early.
struct FaultError {
  std::string what;
};

std::string to_string(Site site);  // "gemv.cu:40"
// "gemv, block 3, thread 17, gemv.cu:40: " and what.
FaultError fault(const Lane& lane, Site at, const std::string& what);

inline bool same_text(const char* a, const char* b) { return a == b || !std::strcmp(a, b); }
inline bool same_line(Site a, Site b) { return a.line == b.line && same_text(a.file, b.file); }

// The lane that runs; only on its fiber.
extern Lane* running;

}  // namespace headrace::simt
