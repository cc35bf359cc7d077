#include "coordinator/router.h"

#include <algorithm>
#include <string>
#include <tuple>

namespace headrace::coordinator {
namespace {

bool avoided(const RouteRequest& request, WorkerId id) {
  return std::find(request.avoid.begin(), request.avoid.end(), id) != request.avoid.end();
}

bool may_decode(const RouteRequest& request, const WorkerView& w) {
  return w.role != Role::kPrefill && w.available && w.blocks_total >= request.whole_blocks &&
         w.blocks_reserved <= w.blocks_total &&
         w.blocks_total - w.blocks_reserved >= request.blocks;
}

// Lives and could ever hold the prompt, whether or not it takes work right now.
bool could_prefill(const RouteRequest& request, const WorkerView& w) {
  return w.role == Role::kPrefill && request.prompt_tokens >= 2 &&
         w.blocks_total >= request.prompt_blocks;
}

Duration queued(const WorkerView& w) {
  return w.prefill_tokens == 0 ? Duration{0} : predict_prefill(w.time, w.prefill_tokens, 0);
}

// The step that gives the first token, in the batch that is there.
Duration first_step(const RouteRequest& request, const WorkerView& w) {
  return predict_decode_step(w.time, w.decodes + 1, w.context_tokens + request.prompt_tokens);
}

Duration local_time(const RouteRequest& request, const WorkerView& w) {
  return queued(w) + predict_prefill(w.time, request.prompt_tokens, 0);
}

Duration remote_time(const RouteRequest& request, const WorkerView& p, const WorkerView& d) {
  const uint64_t tokens = request.prompt_tokens - 1;
  return queued(p) + predict_prefill(p.time, tokens, 0) +
         predict_transfer(p.time, d.time, tokens * request.kv_token_bytes) + first_step(request, d);
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

std::optional<Route> route(const RouteRequest& request, std::span<const WorkerView> workers) {
  // With `always` a decode worker prefills only where no hand-off is possible.
  const bool prefill_lives = std::any_of(workers.begin(), workers.end(), [&](const WorkerView& w) {
    return could_prefill(request, w) && !avoided(request, w.id);
  });
  std::optional<Route> best;
  Rank best_rank;
  const auto offer = [&](const Rank& rank, const Route& candidate) {
    if (best && rank >= best_rank) return;
    best = candidate;
    best_rank = rank;
  };
  for (const WorkerView& d : workers) {
    if (!may_decode(request, d)) continue;
    const int d_failed = avoided(request, d.id) ? 2 : 0;
    const bool must_receive = request.mode == PdMode::kAlways && prefill_lives && d.receives;
    if (!must_receive) {
      const Duration time = local_time(request, d);
      offer({d_failed, time, 1, d.in_flight, raw(d.id), 0}, {d.id, {}, time});
    }
    if (request.mode == PdMode::kNever || !d.receives) continue;
    for (const WorkerView& p : workers) {
      if (!could_prefill(request, p) || !p.available) continue;
      const Duration time = remote_time(request, p, d);
      const int failed = d_failed + (avoided(request, p.id) ? 1 : 0);
      offer({failed, time, 0, uint64_t{d.in_flight} + p.in_flight, raw(d.id), raw(p.id)},
            {d.id, p.id, time});
    }
  }
  return best;
}

}  // namespace headrace::coordinator
