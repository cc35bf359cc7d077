#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>

#include "coordinator/limits.h"

namespace headrace::coordinator {

struct RequestRecord;

// Whether a client has taken something of an answer before, of this one or of others (standing.h).
enum class Rank : uint8_t { kKnown, kStranger };
constexpr Rank other(Rank rank) { return rank == Rank::kKnown ? Rank::kStranger : Rank::kKnown; }

// Requests that wait for a worker, in a line for each rank, in order of arrival; at most kQueueMax
// new ones in each, so strangers take no place from those who are known. Pure: it says whose turn
// it is, the Dispatcher looks who has room. Within a line nothing overtakes.
class AdmissionQueue {
 public:
  using Line = std::list<RequestRecord*>;

  Line& line(Rank rank) { return lines_[static_cast<size_t>(rank)]; }
  const Line& line(Rank rank) const { return lines_[static_cast<size_t>(rank)]; }
  bool full(Rank rank) const { return line(rank).size() >= kQueueMax; }
  size_t size() const { return line(Rank::kKnown).size() + line(Rank::kStranger).size(); }
  void remove(Rank rank, RequestRecord* record) { line(rank).remove(record); }

  // Whose head goes first now: those who are known; after kKnownTurns of them, while strangers
  // wait, one of these.
  Rank turn() const {
    const bool owed = in_a_row_ >= kKnownTurns || line(Rank::kKnown).empty();
    return owed && !line(Rank::kStranger).empty() ? Rank::kStranger : Rank::kKnown;
  }
  // One of this rank was given to a worker, and is removed.
  void placed(Rank rank) {
    const bool passed = rank == Rank::kKnown && !line(Rank::kStranger).empty();
    in_a_row_ = passed ? in_a_row_ + 1 : 0;
  }

 private:
  std::array<Line, 2> lines_;
  uint32_t in_a_row_ = 0;  // of those who are known, while a stranger waited
};

}  // namespace headrace::coordinator
