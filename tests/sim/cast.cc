#include "tests/sim/cast.h"

#include "protocol/codec.h"
#include "worker/handoff_wire.h"

namespace headrace::sim {

StateSet Cast::states_at(const std::string& process) const {
  StateSet out = 0;
  const bool all = process == "coordinator";
  const Slot* hit = nullptr;
  for (const Slot& s : slots) {
    if (!s.up() || (!all && s.name != process)) continue;
    hit = &s;
    for (const auto& [key, sequence] : s.worker.node->worker().held())
      out = static_cast<StateSet>(out | bit(state_of(sequence)));
  }
  for (const auto& [id, record] : coordinator->actor().requests()) {
    const State state = state_of(*record);
    if (state == State::kDecoding) continue;
    if (state == State::kGranting && !all) {
      const auto& attempt = record->attempt;
      if (!hit || !attempt) continue;
      if (attempt->decode != *hit->worker.id && attempt->prefill != *hit->worker.id) continue;
    }
    out = static_cast<StateSet>(out | bit(state));
  }
  return out;
}

namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

std::string brief(TransferId id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = " #";
  for (int i = 15; i > 11; --i) out += kDigits[(id.hi >> (i * 4)) & 15];
  return out;
}

std::string of(TransferId transfer, Attempt attempt) {
  return brief(transfer) + "/" + std::to_string(raw(attempt));
}

std::string words(const ToWorker& message) {
  using namespace to_worker;  // NOLINT: all of them
  return std::visit(
      Overload{[](const Welcome& m) { return "Welcome " + std::to_string(raw(m.worker)); },
               [](const Rejected& m) { return "Rejected: " + m.why.message; },
               [](const Ping& m) { return "Ping of " + std::to_string(m.live.size()); },
               [](const FetchTokenizer&) { return std::string("FetchTokenizer"); },
               [](const Prepare& m) {
                 return "Prepare" + of(m.transfer, m.attempt) + " prompt " +
                        std::to_string(m.prompt.size()) + (m.remote_prefill ? " remote" : "");
               },
               [](const Start& m) { return "Start" + of(m.transfer, m.attempt); },
               [](const Cancel& m) {
                 return "Cancel" + of(m.transfer, m.attempt) + ": " + m.reason.message;
               }},
      message);
}

std::string words(const ToCoordinator& message) {
  using namespace to_coordinator;  // NOLINT: all of them
  return std::visit(
      Overload{[](const Register& m) { return "Register " + m.name; },
               [](const Beat& m) {
                 return "Beat steps " + std::to_string(m.steps) + ", holds " +
                        std::to_string(m.transfers.size());
               },
               [](const TokenizerPiece&) { return std::string("TokenizerPiece"); },
               [](const Grant& m) { return "Grant" + of(m.transfer, m.attempt); },
               [](const Refuse& m) {
                 return "Refuse" + of(m.transfer, m.attempt) + ": " + m.why.message;
               },
               [](const PrefillDone& m) { return "PrefillDone" + of(m.transfer, m.attempt); },
               [](const Owned& m) { return "Owned" + of(m.transfer, m.attempt); },
               [](const AttemptFailed& m) {
                 return "AttemptFailed" + of(m.transfer, m.attempt) + ": " + m.why.message;
               },
               [](const Tokens& m) {
                 std::string out = "Tokens";
                 for (const TokenRun& r : m.runs) {
                   out += of(r.transfer, r.attempt) + " at " + std::to_string(r.position);
                   if (r.finish != Finish::kNone)
                     out += std::string(" ") + headrace::name(r.finish);
                 }
                 return out;
               },
               [](const Quiesced& m) { return "Quiesced" + of(m.transfer, m.attempt); }},
      message);
}

std::string words(const worker::handoff::Frame& frame) {
  using namespace worker::handoff;  // NOLINT: all of them
  return std::visit(
      Overload{[](const Hello& m) { return "Hello" + of(m.transfer, m.attempt); },
               [](const HelloAck&) { return std::string("HelloAck"); },
               [](const Slice& m) {
                 return "Slice of block " + std::to_string(m.block) + " at " +
                        std::to_string(m.offset);
               },
               [](const ChunkEnd& m) { return "ChunkEnd " + std::to_string(m.chunk); },
               [](const Commit& m) { return "Commit of chunks " + std::to_string(m.chunks); },
               [](const Verdict& m) { return "Verdict " + m.status.message; },
               [](const Alive& m) { return "Alive " + std::to_string(m.count); },
               [](const SlotPosted&) { return std::string("SlotPosted"); },
               [](const LaneNote& m) {
                 return "LaneNote of " + std::to_string(m.bytes.size()) + " bytes";
               }},
      frame);
}

template <class T>
std::string or_bytes(const Result<T>& message, const Bytes& frame) {
  return message ? words(*message) : std::to_string(frame.size()) + " bytes that say nothing";
}

}  // namespace

std::string describe_frame(const std::string& host, bool to_coordinator, const Bytes& frame) {
  if (host != "coordinator") return or_bytes(worker::decode_handoff(frame), frame);
  if (to_coordinator) return or_bytes(decode_to_coordinator(frame), frame);
  return or_bytes(decode_to_worker(frame), frame);
}

}  // namespace headrace::sim
