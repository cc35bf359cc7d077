#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "protocol/ids.h"
#include "protocol/strand.h"
#include "worker/probes.h"

namespace headrace::worker {

// How near the links over which KV comes here are to what they can do, for each way of its own
// (tcp, NCCL), over the last seconds in which KV came: what WorkerGauges.links carry. A pure value
// on the strand of the receiver.
//
// Share = bytes / time / limit, of each peer, weighed by time. Bytes are those of KV. Time is that
// in which a chunk, or by NCCL a slot, of this peer was under way: once, however many hand-offs had
// the link together, and not while the peer still computes.
//
// The limit of a peer is the highest rate at which its KV has come over kSampleBytes or kSample of
// that time: more than what lies ready in the buffers of the system, which comes faster than any
// link. Nobody measures it otherwise, so a link that was never loaded counts what it was seen to
// do as its limit, one that several peers share has its limit at none of them, and who is slow
// himself (either end) looks like a slow link. It is never lowered: a link that has become slow
// shows a small share.
class LinkMeter {
 public:
  static constexpr double kWindow = 3.0;      // seconds of time under way remembered, of each peer
  static constexpr double kSlice = 0.1;       // they are kept in slices of at least this
  static constexpr Duration kIdleAfter = 5s;  // without KV no link is saturated any more
  static constexpr double kSample = 0.5;      // seconds
  static constexpr uint64_t kSampleBytes = 16u << 20;
  static constexpr size_t kPeersMax = 256;  // the one unused for longest is forgotten

  // By tcp: a chunk begins to come, over one more channel; some of it has come; it is there, or
  // given up.
  void begin(Incarnation peer, Instant now);
  void came(Incarnation peer, uint64_t bytes, Instant now);
  void end(Incarnation peer, Instant now);
  // By a lane: a slot, and how long it was under way; of one device they come one after another.
  void slot(Incarnation peer, uint64_t bytes, Duration wire, Instant now);
  // Each 100 ms.
  void sweep(Instant now);

  LinkUse use(LaneKind way) const { return seen_[static_cast<size_t>(way)]; }
  size_t size() const { return links_.size(); }

 private:
  struct Slice {
    double bytes = 0;
    double seconds = 0;
    void add(double more, double time) {
      bytes += more;
      seconds += time;
    }
  };
  struct Link {
    uint32_t under_way = 0;  // channels
    Instant since{};         // when they were counted last
    Instant used{};
    double limit = 0;  // bytes per second; 0: not known yet
    Slice sample;
    std::deque<Slice> slices;
  };
  using Key = std::pair<Incarnation, LaneKind>;

  Link& at(Incarnation peer, LaneKind way, Instant now);
  static void pass(Link& link, double bytes, Instant now);
  static void add(Link& link, double bytes, double seconds);
  LinkUse judge(LaneKind way) const;

  std::map<Key, Link> links_;
  LinkUse seen_[2];  // by LaneKind
};

}  // namespace headrace::worker
