#include "coordinator/router.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "coordinator/limits.h"

namespace headrace::coordinator {
namespace {

bool avoided(const RouteRequest& request, WorkerId id) {
  return std::find(request.avoid.begin(), request.avoid.end(), id) != request.avoid.end();
}

bool sick(const RouteRequest& request, const WorkerView& p, const WorkerView& d) {
  return std::find(request.sick.begin(), request.sick.end(), WorkerPair{p.id, d.id}) !=
         request.sick.end();
}

// With one stranger more, its steps would be slower than those who are known have to bear.
bool strangers_full(const RouteRequest& request, const WorkerView& w) {
  if (w.strangers < kStrangersLeast) return false;
  if (w.role == Role::kPrefill) return true;
  const uint64_t known = std::max<uint64_t>(1, w.decodes - std::min(w.decodes, w.strangers));
  const Duration bare = predict_decode_step(w.time, known, w.context_tokens);
  const Duration full =
      predict_decode_step(w.time, w.decodes + 1, w.context_tokens + request.prompt_tokens);
  return bare <= Duration{0} || full > bare + bare / kStrangersSlow;
}

bool takes(const RouteRequest& request, const WorkerView& w) {
  return w.available && !(request.suspect && w.busy_with_suspect) &&
         !(request.stranger && strangers_full(request, w));
}

bool may_decode(const RouteRequest& request, const WorkerView& w) {
  return w.role != Role::kPrefill && takes(request, w) && w.blocks_total >= request.whole_blocks &&
         w.blocks_reserved <= w.blocks_total &&
         w.blocks_total - w.blocks_reserved >= request.blocks;
}

// Lives and could ever hold the prompt, whether or not it takes work right now.
bool could_prefill(const RouteRequest& request, const WorkerView& w) {
  return w.role == Role::kPrefill && request.prompt_tokens >= 2 &&
         w.blocks_total >= request.prompt_blocks;
}

// Of the first `tokens`, those that the worker need not compute.
uint64_t cached(const WorkerView& w, uint64_t tokens) { return std::min(w.cached_tokens, tokens); }

// The first n-1 tokens that the decode worker lacks: what a hand-off would carry.
uint64_t lacking(const RouteRequest& request, const WorkerView& d) {
  const uint64_t tokens = request.prompt_tokens - 1;
  return tokens - cached(d, tokens);
}

Duration prefill(const WorkerView& w, uint64_t tokens, uint64_t have) {
  return tokens == 0 ? Duration{0} : predict_prefill(w.time, tokens, have);
}

Duration queued(const WorkerView& w) { return prefill(w, w.prefill_tokens, 0); }

// The step that gives the first token, in the batch that is there.
Duration first_step(const RouteRequest& request, const WorkerView& w) {
  return predict_decode_step(w.time, w.decodes + 1, w.context_tokens + request.prompt_tokens);
}

// The last token is computed in any case: its step samples.
Duration local_time(const RouteRequest& request, const WorkerView& w) {
  const uint64_t have = cached(w, request.prompt_tokens - 1);
  return queued(w) + prefill(w, request.prompt_tokens - have, have);
}

uint64_t handed_bytes(const RouteRequest& request, const WorkerView& d) {
  return lacking(request, d) * request.kv_token_bytes;
}

Duration transfer(const RouteRequest& request, const WorkerView& p, const WorkerView& d) {
  const uint64_t bytes = handed_bytes(request, d);
  if (request.links)
    if (const auto learned = request.links->transfer({p.id, d.id}, bytes)) return *learned;
  return predict_transfer(p.time, d.time, bytes);
}

// What the hand-off may cost as a trial of the pair.
Duration credit(const RouteRequest& request, const WorkerView& p, const WorkerView& d) {
  if (!request.links) return Duration{0};
  return request.links->credit({p.id, d.id}, handed_bytes(request, d), request.now);
}

Duration part(Duration whole, uint64_t of, uint64_t all) {
  return Duration{static_cast<int64_t>(static_cast<double>(whole.count()) *
                                       (static_cast<double>(of) / static_cast<double>(all)))};
}

// A prefill worker sends the blocks of a step while it computes the next one, those that it had
// cached at once. `computed` tokens and `sent` ones, the last of which are the same.
Duration side_by_side(Duration compute, uint64_t computed, Duration wire, uint64_t sent) {
  if (computed == 0) return wire;
  const uint64_t fresh = std::min(computed, sent);
  const uint64_t before = computed - fresh + std::min(fresh, kStepTokens);
  const uint64_t last = (computed - 1) % kStepTokens + 1;
  return std::max({wire, part(compute, before, computed) + part(wire, fresh, sent),
                   compute + part(wire, std::min(last, fresh), sent)});
}

Duration remote_time(const RouteRequest& request, const WorkerView& p, const WorkerView& d) {
  const uint64_t tokens = request.prompt_tokens - 1, have = cached(p, tokens);
  const Duration compute = prefill(p, tokens - have, have);
  return queued(p) +
         side_by_side(compute, tokens - have, transfer(request, p, d),
                      std::max<uint64_t>(1, lacking(request, d))) +
         first_step(request, d);
}

// Order of preference: lower is better. A worker that failed this request before comes last; at
// equal times a remote prefill is preferred, since it leaves the decode batch undisturbed.
using Rank = std::tuple<int, Duration, int, uint64_t, uint64_t, uint64_t>;

}  // namespace

const char* name(PdMode mode) {
  switch (mode) {
    case PdMode::kAuto:
      return "auto";
    case PdMode::kAlways:
      return "always";
    case PdMode::kNever:
      return "never";
  }
  return "auto";
}

Result<PdMode> parse_pd_mode(std::string_view text) {
  for (PdMode mode : {PdMode::kAuto, PdMode::kAlways, PdMode::kNever})
    if (text == name(mode)) return mode;
  return error(Errc::kInvalid, "'" + std::string(text) + "' is not one of auto, always, never");
}

namespace {

struct Choice {
  std::optional<Route> best;
  std::optional<Duration> soonest;  // of all that are not known to fail
  int offers = 0;
};

// Whether a hand-off to it would carry anything.
bool may_receive(const RouteRequest& request, const WorkerView& d) {
  return d.receives && request.prompt_tokens >= 2 && lacking(request, d) > 0;
}

// Some hand-off is possible, now or once a prefill worker has room, that is not known to fail.
bool healthy_pair(const RouteRequest& request, std::span<const WorkerView> workers) {
  for (const WorkerView& d : workers) {
    if (!may_decode(request, d) || !may_receive(request, d)) continue;
    for (const WorkerView& p : workers)
      if (could_prefill(request, p) && !avoided(request, p.id) && !sick(request, p, d)) return true;
  }
  return false;
}

Choice choose(const RouteRequest& request, std::span<const WorkerView> workers) {
  Choice out;
  Rank best_rank;
  const auto offer = [&](const Rank& rank, const Route& candidate) {
    ++out.offers;
    if (std::get<0>(rank) == 0)
      out.soonest = std::min(out.soonest.value_or(kTransferMax), candidate.first_token);
    if (out.best && rank >= best_rank) return;
    out.best = candidate;
    best_rank = rank;
  };
  // With `always` a decode worker prefills only where no hand-off is possible.
  const bool handed = request.mode == PdMode::kAlways && healthy_pair(request, workers);
  for (const WorkerView& d : workers) {
    if (!may_decode(request, d)) continue;
    const int d_failed = avoided(request, d.id) ? 2 : 0;
    const bool hand_off = may_receive(request, d);
    const bool must_receive = handed && hand_off;
    if (!must_receive) {
      const Duration time = local_time(request, d);
      offer({d_failed, time, 1, d.in_flight, raw(d.id), 0},
            {d.id, {}, time, cached(d, request.prompt_tokens - 1)});
    }
    if (request.mode == PdMode::kNever || !hand_off) continue;
    for (const WorkerView& p : workers) {
      if (!could_prefill(request, p) || !takes(request, p)) continue;
      const Duration time = remote_time(request, p, d);
      const int failed = d_failed + (avoided(request, p.id) || sick(request, p, d) ? 1 : 0);
      const Duration counts = time - credit(request, p, d);
      offer({failed, counts, 0, uint64_t{d.in_flight} + p.in_flight, raw(d.id), raw(p.id)},
            {d.id, p.id, time, cached(p, request.prompt_tokens - 1)});
    }
  }
  if (out.best && out.soonest)
    out.best->extra = std::max(Duration{0}, out.best->first_token - *out.soonest);
  return out;
}

}  // namespace

std::optional<Route> route(const RouteRequest& request, std::span<const WorkerView> workers) {
  Choice choice = choose(request, workers);
  if (!choice.best) return {};
  if (choice.offers == 1) {
    choice.best->reason = "only_choice";
  } else if (std::any_of(workers.begin(), workers.end(),
                         [](const WorkerView& w) { return w.cached_tokens > 0; })) {
    std::vector<WorkerView> bare(workers.begin(), workers.end());
    for (WorkerView& w : bare) w.cached_tokens = 0;
    const std::optional<Route> without = choose(request, bare).best;
    if (!without || without->decode != choice.best->decode ||
        without->prefill != choice.best->prefill)
      choice.best->reason = "prefix";
  }
  return choice.best;
}

}  // namespace headrace::coordinator
