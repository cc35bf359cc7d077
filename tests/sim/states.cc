#include "tests/sim/states.h"

#include <cstdio>

namespace headrace::sim {

using worker::Sequence;
using worker::Stage;

const char* name(State state) {
  static constexpr const char* kNames[kStates] = {
      "admitted", "granting", "granted",  "prefilling",  "streaming", "committed",
      "owned",    "decoding", "aborting", "quarantined", "retrying",  "done"};
  return kNames[static_cast<size_t>(state)];
}

const char* name(Fault fault) {
  static constexpr const char* kNames[kFaults] = {"crash", "cut", "delay", "repeat"};
  return kNames[static_cast<size_t>(fault)];
}

State state_of(const Sequence& s) {
  switch (s.stage) {
    case Stage::kGranted:
      return State::kGranted;
    case Stage::kReceiving:
      return State::kStreaming;
    case Stage::kSending:
      return s.sender && s.sender->committed() ? State::kCommitted : State::kStreaming;
    case Stage::kEnding:
      return State::kAborting;
    case Stage::kWaiting:
    case Stage::kRunning:
      break;
  }
  if (s.prefill_only) return s.pushed_blocks > 0 ? State::kStreaming : State::kPrefilling;
  if (s.made() > 0) return State::kDecoding;
  const bool granted = s.lease != Instant{};
  return granted && s.computed + 1 >= s.prompt_tokens ? State::kOwned : State::kPrefilling;
}

State state_of(const coordinator::RequestRecord& record) {
  using coordinator::Phase;
  if (record.phase == Phase::kQueued)
    return record.attempts == 0 ? State::kAdmitted : State::kRetrying;
  if (record.phase == Phase::kGranting) return State::kGranting;
  if (record.phase == Phase::kPrefilling || record.phase == Phase::kDecoding)
    return State::kDecoding;
  return State::kDone;
}

std::string impossible(State state, Fault) {
  if (state == State::kQuarantined)
    return "over TCP the reader is ours and always stops: no block is ever quarantined";
  return {};
}

void Coverage::mark(StateSet states, Fault fault) {
  for (size_t s = 0; s < kStates; ++s)
    if (states & (1u << s)) ++met[s][static_cast<size_t>(fault)];
}

Coverage& Coverage::operator+=(const Coverage& other) {
  for (size_t s = 0; s < kStates; ++s)
    for (size_t f = 0; f < kFaults; ++f) met[s][f] += other.met[s][f];
  return *this;
}

size_t Coverage::possible() {
  size_t n = 0;
  for (size_t s = 0; s < kStates; ++s)
    for (size_t f = 0; f < kFaults; ++f) n += impossible(State(s), Fault(f)).empty() ? 1 : 0;
  return n;
}

size_t Coverage::reached() const {
  size_t n = 0;
  for (const auto& row : met)
    for (const uint64_t times : row) n += times > 0 ? 1 : 0;
  return n;
}

std::string Coverage::missing() const {
  std::string out;
  for (size_t s = 0; s < kStates; ++s)
    for (size_t f = 0; f < kFaults; ++f) {
      if (met[s][f] > 0 || !impossible(State(s), Fault(f)).empty()) continue;
      out += (out.empty() ? "" : ", ") + std::string(name(State(s))) + " x " + name(Fault(f));
    }
  return out;
}

std::string Coverage::table() const {
  char line[128];
  std::snprintf(line, sizeof line, "%-12s %10s %10s %10s %10s\n", "state", name(Fault(0)),
                name(Fault(1)), name(Fault(2)), name(Fault(3)));
  std::string out = line;
  for (size_t s = 0; s < kStates; ++s) {
    std::snprintf(line, sizeof line, "%-12s", name(State(s)));
    out += line;
    for (size_t f = 0; f < kFaults; ++f) {
      if (impossible(State(s), Fault(f)).empty())
        std::snprintf(line, sizeof line, " %10llu", static_cast<unsigned long long>(met[s][f]));
      else
        std::snprintf(line, sizeof line, " %10s", "-");
      out += line;
    }
    const std::string why = impossible(State(s), Fault::kCrash);
    out += (why.empty() ? "" : "  " + why) + "\n";
  }
  return out;
}

}  // namespace headrace::sim
