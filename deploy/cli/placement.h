#pragma once

#include <optional>
#include <string>
#include <vector>

#include "protocol/result.h"

namespace headrace::cli {

// What is asked of `serve` about its workers; none: as this machine suggests.
struct PlacementRequest {
  std::string device = "auto";  // or several GPUs: "cuda:0,cuda:2"
  std::optional<int> prefill;
  std::optional<int> decode;
};

// A worker that `serve` starts.
struct Placed {
  std::string name;    // "prefill-0"
  std::string role;    // "prefill", "decode", "both"
  std::string device;  // for --device
  double share = 1;    // of a GPU's memory
  bool operator==(const Placed&) const = default;
};

// Which workers there are and where each computes, on a machine with `gpus` GPUs (0: "auto" is the
// processor).
//
// "auto" gives each GPU at most one worker: all that are there unless a count is given, a third of
// them for prefill; one GPU does both. More workers than GPUs are refused with both numbers. A
// single named device has all workers; a list is dealt out in order and has one entry a worker. A
// GPU that has several workers, because it was named for them, is shared out evenly.
Result<std::vector<Placed>> place_workers(const PlacementRequest& request, int gpus);

}  // namespace headrace::cli
