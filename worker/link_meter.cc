#include "worker/link_meter.h"

#include <algorithm>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

LinkMeter::Link& LinkMeter::at(Incarnation peer, LaneKind way, Instant now) {
  const Key key(peer, way);
  if (!links_.contains(key) && links_.size() >= kPeersMax) {
    const auto older = [](const auto& a, const auto& b) {
      return std::pair(a.second.under_way > 0, a.second.used) <
             std::pair(b.second.under_way > 0, b.second.used);
    };
    const auto oldest = std::min_element(links_.begin(), links_.end(), older);
    if (oldest->second.under_way == 0) links_.erase(oldest);
  }
  Link& link = links_[key];
  link.used = now;
  return link;
}

// `bytes` have come, and the time since it was counted last is one in which it was used, if it was.
void LinkMeter::pass(Link& link, double bytes, Instant now) {
  const Instant since = std::exchange(link.since, now);
  if (link.under_way > 0) add(link, bytes, seconds(now - since));
}

void LinkMeter::add(Link& link, double bytes, double seconds) {
  if (link.slices.empty() || link.slices.back().seconds >= kSlice) link.slices.emplace_back();
  link.slices.back().add(bytes, seconds);
  double time = 0;
  for (const Slice& s : link.slices) time += s.seconds;
  // The oldest goes when what follows it fills the window.
  while (link.slices.size() > 1 && time - link.slices.front().seconds >= kWindow) {
    time -= link.slices.front().seconds;
    link.slices.pop_front();
  }
  // One ends as bytes come, so that it holds the bytes of all its time.
  Slice& sample = link.sample;
  sample.add(bytes, seconds);
  if (!(bytes > 0 && sample.seconds > 0)) return;
  if (sample.bytes < static_cast<double>(kSampleBytes) && sample.seconds < kSample) return;
  link.limit = std::max(link.limit, sample.bytes / sample.seconds);
  sample = {};
}

void LinkMeter::begin(Incarnation peer, Instant now) {
  Link& link = at(peer, LaneKind::kTcp, now);
  pass(link, 0, now);
  ++link.under_way;
}

void LinkMeter::came(Incarnation peer, uint64_t bytes, Instant now) {
  pass(at(peer, LaneKind::kTcp, now), static_cast<double>(bytes), now);
}

void LinkMeter::end(Incarnation peer, Instant now) {
  Link& link = at(peer, LaneKind::kTcp, now);
  CHECK(link.under_way > 0);
  pass(link, 0, now);
  --link.under_way;
}

void LinkMeter::slot(Incarnation peer, uint64_t bytes, Duration wire, Instant now) {
  add(at(peer, LaneKind::kNccl, now), static_cast<double>(bytes), seconds(wire));
}

void LinkMeter::sweep(Instant now) {
  for (auto& [key, link] : links_) {
    pass(link, 0, now);
    if (link.under_way > 0) link.used = now;
    if (now - link.used > kIdleAfter) link.slices.clear();
  }
  for (const LaneKind way : {LaneKind::kTcp, LaneKind::kNccl}) {
    seen_[static_cast<size_t>(way)] = judge(way);
  }
}

LinkUse LinkMeter::judge(LaneKind way) const {
  double bytes = 0, time = 0, floor = 0;  // floor: seconds that the bytes take at the limits
  for (const auto& [key, link] : links_) {
    if (key.second != way || !(link.limit > 0)) continue;
    for (const Slice& s : link.slices) {
      bytes += s.bytes;
      time += s.seconds;
      floor += s.bytes / link.limit;
    }
  }
  if (!(time > 0)) return {0, use(way).limit};
  return {std::min(floor / time, 1.0), floor > 0 ? bytes / floor : use(way).limit};
}

}  // namespace headrace::worker
