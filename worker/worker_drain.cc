#include <algorithm>
#include <utility>

#include "protocol/limits.h"
#include "protocol/planted.h"
#include "worker/worker.h"

// The end of a worker: no new work, what runs is finished, what does not finish goes elsewhere.

namespace headrace::worker {

void Worker::on(Drain m) {
  const Instant until = strand_->now() + std::clamp(m.grace, Duration{0}, limits::kDuration);
  if (!drain_) {
    drain_ = Draining{until, false, {}};
    if (registered()) beat();  // at once, so that nothing more is sent here
  }
  drain_->until = std::min(drain_->until, until);
  if (m.done) drain_->done.push_back(std::move(m.done));
}

// Not ok: it is to be started again.
Status Worker::health(Instant now) const {
  Status status = quarantine_.health(now);
  return status.ok() && lanes_ ? lanes_->health() : status;
}

// Each sweep. The end is told a sweep after the last word, which so has left by then.
void Worker::check_drain(Instant now) {
  if (!drain_) {
    if (health(now).ok()) return;
    on(Drain{options_.drain, {}});  // sick: to be started again
  }
  const bool forgets = planted(Mistake::kDrainForgets);
  if (sequences_.empty() || forgets || now >= drain_->until + kDrainLast) {
    for (const auto& done : std::exchange(drain_->done, {})) done();
    return;
  }
  if (now < drain_->until || std::exchange(drain_->ended, true)) return;
  std::vector<Key> keys;
  for (const auto& [key, s] : sequences_) keys.push_back(key);
  for (const Key key : keys) {
    fail(key, error(Errc::kUnavailable, "this worker drains and its time is over"));
  }
}

}  // namespace headrace::worker
