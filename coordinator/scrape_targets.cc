#include "coordinator/scrape_targets.h"

#include <algorithm>
#include <utility>

#include "protocol/status_pages.h"

namespace headrace::coordinator {
namespace {

std::string entry(const Endpoint& at, std::string_view component, std::string_view worker) {
  return "{\"targets\":[" + json_string(to_string(at)) +
         "],\"labels\":{\"component\":" + json_string(component) +
         ",\"worker\":" + json_string(worker) + "}}";
}

}  // namespace

void ScrapeTargets::status(const ClusterStatus& status, Instant now) {
  coordinator_ = status.metrics;
  std::map<WorkerId, Target> present;
  for (const WorkerStatus& w : status.workers) {
    const Target& target = present[w.id] = {w.metrics, w.name};
    if (!present_.contains(w.id)) replaced(target);
  }
  present_ = std::move(present);
  while (!lost_.empty() && now - lost_.front().lost > kLostFor) lost_.pop_front();
}

void ScrapeTargets::lost(WorkerId worker, Instant now) {
  auto node = present_.extract(worker);
  if (!node || node.mapped().at.port == 0) return;
  node.mapped().lost = now;
  lost_.push_back(std::move(node.mapped()));
  if (lost_.size() > kLostMax) lost_.pop_front();
}

void ScrapeTargets::replaced(const Target& by) {
  auto old = std::find_if(lost_.begin(), lost_.end(),
                          [&](const Target& lost) { return lost.at == by.at; });
  if (old == lost_.end()) {
    old = std::find_if(lost_.begin(), lost_.end(),
                       [&](const Target& lost) { return lost.name == by.name; });
  }
  if (old != lost_.end()) lost_.erase(old);
}

std::string ScrapeTargets::json() const {
  std::string out = "[";
  const auto add = [&](const Endpoint& at, std::string_view component, std::string_view worker) {
    if (at.port == 0) return;
    if (out.size() > 1) out += ',';
    out += entry(at, component, worker);
  };
  add(coordinator_, "coordinator", "coordinator");
  for (const auto& [id, target] : present_) add(target.at, "worker", target.name);
  for (const Target& target : lost_) add(target.at, "worker", target.name);
  return out + "]";
}

}  // namespace headrace::coordinator
