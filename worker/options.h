#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "protocol/messages.h"
#include "protocol/random.h"
#include "protocol/slowdown.h"
#include "worker/handoff_options.h"
#include "worker/payload_lane.h"
#include "worker/probes.h"

namespace headrace::worker {

// What one worker is and may do. Every limit that refuses something is named in the refusal.
struct WorkerOptions {
  Role role = Role::kBoth;
  std::string name;    // for people: "decode-0"
  std::string device;  // "cpu avx512vnni, 2 threads"
  uint64_t pid = 0;
  Endpoint kv{"127.0.0.1", 0};           // where to listen for hand-offs; unused by Role::kPrefill
  std::optional<Endpoint> kv_advertise;  // how peers reach it, if not at `kv` (NAT, proxy)
  Endpoint metrics;
  MachineLimits limits;

  uint32_t token_budget = 512;    // rows of a step
  Duration mixed_target = 200ms;  // of a step with prompts and decode rows, see PlanLimits
  uint32_t running_max = 256;
  uint32_t waiting_max = 1024;
  uint32_t transfers_max = 64;  // hand-offs at a time, each side

  Duration lease = 3s;  // of a grant; renewed by Ping
  // Of the coordinator's silence. It pings each 200 ms and takes a worker that does not answer for
  // lost within 1.5 s, so what was held for it is of no use much longer.
  Duration pause_after = 1s * kSlowdown;   // no new step
  Duration forget_after = 2s * kSlowdown;  // the link is given up, all is freed
  Duration step_max = 30s;                 // a longer step fails what it carries
  HandoffOptions handoff;
  // What may move KV beside the channels, for slots of so many bytes; called once, on the worker's
  // strand, if its blocks are a device's. None: tcp.
  std::function<std::shared_ptr<LaneSource>(std::shared_ptr<Strand>, Random&, uint64_t slot_bytes)>
      lanes;
  bool prefix_cache = true;
  bool prepare = true;             // steps while the one before them runs
  Duration drain = 30s;            // what running sequences get after Drain
  std::shared_ptr<Probes> probes;  // none: nobody looks
};

}  // namespace headrace::worker
