#pragma once

#include <cstdint>

namespace headrace {

// Mistakes that one test binary (tests/sim, sim_mutants) plants in the actors, one at a time, to
// see that the simulator finds each. Everywhere else planted() is a constant false and costs
// nothing. tests/sim/README.md tells what each one breaks.
enum class Mistake : uint8_t {
  kNone,
  // Of the hand-off protocol.
  kFreeOnCancel,        // blocks freed at Cancel, their reader goes on
  kRegrantEarly,        // blocks granted anew after a lost link, their reader goes on
  kHelloOfAnyAttempt,   // a sender of another attempt is admitted
  kHelloToAnyone,       // a sender that means another incarnation is admitted
  kDecodeUnverified,    // Commit is believed
  kTokensOfOldAttempt,  // tokens of an attempt that is over are taken
  kNoLease,             // a grant that nobody renews is kept
  kCrcBelieved,         // the sender's sum is taken for the right one
  kReadIncoming,        // decoding begins with the sender's hello
  // Of the hand-off over NCCL.
  kNcclJoinAny,       // a lane joins whatever pair there is, not the one it names
  kNcclFreedEarly,    // a closed lane is quiet, though its receive is under way
  kNcclRegrantEarly,  // an abort that has begun counts as one that is over
  kNcclAnyOrder,      // go is said whatever this device has offered
  kNcclOneSided,      // what the peer has aborted is forgotten, not aborted
  kNcclIdUncounted,   // minted ids are not counted
  kNcclMintEarly,     // an id is minted before the peer has said that it is ready
  kNcclLossIgnored,   // an abort that does not end leaves the process healthy
  kNcclOpenForever,   // an init that does not end is waited for
  // Of the workers.
  kBlocksKept,           // blocks of a failed attempt are never freed
  kPreemptedKeepsCount,  // a preempted sequence believes that its KV is still there
  kIndexFromZero,        // a replay counts its tokens from 0
  kCancelWhileInStep,    // Cancel is forgotten while a step is in flight
  kWorkerSweepsOnce,     // the sweep is not armed again
  kPrefixUnchecked,      // a prefix hit is believed for the whole prompt
  kEvictInUse,           // a cached block is given away while somebody holds it
  kDrainForgets,         // a drained worker says that it is done while it is not
  // Of the coordinator.
  kReplayWithoutLast,  // a replay leaves out the newest token
  kReplayWithoutEnd,   // a replay does not know the end tokens
  kEndedTwice,         // the terminal record is sent twice
  kCreditLost,         // acknowledgements open no credit
  kGapTaken,           // tokens behind a gap are taken
  kRepeatTaken,        // tokens that were taken are taken again
  kBookingKept,        // what was booked on a worker is not given back
  kSweepsOnce,         // the sweep is not armed again
  kDeadlineForgotten,  // a request's deadline is not looked at
  kResumeSkips,        // a resumed stream leaves out its first token
  kDeathIgnored,       // requests of a dead worker wait for it
  kCount,
};

#ifdef HEADRACE_PLANTED
inline namespace with_mistakes {  // a name of its own: the same binary holds code without
inline Mistake planted_mistake = Mistake::kNone;
inline bool planted(Mistake mistake) { return planted_mistake == mistake; }
}  // namespace with_mistakes
#else
constexpr bool planted(Mistake) { return false; }
#endif

}  // namespace headrace
