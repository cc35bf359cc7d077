#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "coordinator/request_record.h"
#include "worker/sequence.h"

namespace headrace::sim {

// Where an attempt stands, over all who know of it: the states of the hand-off protocol as they
// appear in the records of the coordinator and the sequences of the workers.
enum class State : uint8_t {
  kAdmitted,     // coordinator: queued, no attempt made yet
  kGranting,     // coordinator: Prepare sent
  kGranted,      // decode worker: blocks reserved, no sender yet
  kPrefilling,   // who prefills: nothing sent yet
  kStreaming,    // some blocks are sent, or a sender was admitted
  kCommitted,    // prefill worker: all sent, waits for the verdict
  kOwned,        // decode worker: verified, no token yet
  kDecoding,     // tokens come
  kAborting,     // a step in flight still uses its blocks
  kQuarantined,  // a writer could not be stopped
  kRetrying,     // coordinator: queued after a failed attempt
  kDone,         // coordinator: over, the client has not taken all
};
constexpr size_t kStates = 12;
const char* name(State state);

enum class Fault : uint8_t {
  kCrash,   // a worker that takes part dies
  kCut,     // its connections break, or are held
  kDelay,   // it stands still, or a frame from or to it is late
  kRepeat,  // a frame from or to it comes twice
};
constexpr size_t kFaults = 4;
const char* name(Fault fault);

State state_of(const worker::Sequence& s);
// What the coordinator's record says beyond what the workers know; kDecoding: nothing.
State state_of(const coordinator::RequestRecord& record);

using StateSet = uint16_t;
constexpr StateSet bit(State state) {
  return static_cast<StateSet>(1u << static_cast<unsigned>(state));
}

// How often each fault met each state.
struct Coverage {
  std::array<std::array<uint64_t, kFaults>, kStates> met{};

  void mark(StateSet states, Fault fault);
  Coverage& operator+=(const Coverage& other);
  // Pairs that can be met, and those of them that never were, as "state x fault, ...".
  static size_t possible();
  size_t reached() const;
  std::string missing() const;
  std::string table() const;
};

// Why a pair cannot be met; empty: it can.
std::string impossible(State state, Fault fault);

}  // namespace headrace::sim
