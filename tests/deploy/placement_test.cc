#include "deploy/cli/placement.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

// "prefill-0:cuda:0 decode-0:cuda:1", a share of memory below 1 behind a slash: "cuda:0/2".
std::string words(const PlacementRequest& request, int gpus) {
  const auto placed = place_workers(request, gpus);
  if (!placed) return "refused: " + placed.error().message;
  std::string text;
  for (const Placed& p : *placed) {
    CHECK((p.role == "both") == (p.name.rfind("worker-", 0) == 0));
    CHECK((p.role == "both" || p.name.rfind(p.role + "-", 0) == 0));
    const int parts = static_cast<int>(1 / p.share + 0.5);
    text += (text.empty() ? "" : " ") + p.name + ":" + p.device +
            (parts > 1 ? "/" + std::to_string(parts) : "");
  }
  return text;
}

TEST_CASE("the processor has as many workers as are asked for, one of each by default") {
  CHECK(words({}, 0) == "prefill-0:auto decode-0:auto");
  CHECK(words({.device = "cpu"}, 4) == "prefill-0:cpu decode-0:cpu");
  CHECK(words({.device = "cpu:avx2", .prefill = 0, .decode = 2}, 0) ==
        "worker-0:cpu:avx2 worker-1:cpu:avx2");
  CHECK(words({.device = "reference", .decode = 2}, 1) ==
        "prefill-0:reference decode-0:reference decode-1:reference");
}

TEST_CASE("each GPU has a worker, a third of them prefill") {
  CHECK(words({}, 1) == "worker-0:cuda:0");
  CHECK(words({}, 2) == "prefill-0:cuda:0 decode-0:cuda:1");
  CHECK(words({}, 3) == "prefill-0:cuda:0 decode-0:cuda:1 decode-1:cuda:2");
  for (const auto& [gpus, prefill] : {std::pair(4, 1), {5, 2}, {6, 2}, {8, 3}, {16, 5}}) {
    const auto placed = place_workers({}, gpus);
    REQUIRE(placed);
    CHECK(placed->size() == static_cast<size_t>(gpus));
    int found = 0;
    for (const Placed& p : *placed) found += p.role == "prefill" ? 1 : 0;
    CHECK(found == prefill);
  }
}

TEST_CASE("counts that are given are kept, the others are of the GPUs that are left") {
  CHECK(words({.prefill = 0}, 2) == "worker-0:cuda:0 worker-1:cuda:1");
  CHECK(words({.prefill = 2}, 3) == "prefill-0:cuda:0 prefill-1:cuda:1 decode-0:cuda:2");
  CHECK(words({.decode = 1}, 3) == "prefill-0:cuda:0 prefill-1:cuda:1 decode-0:cuda:2");
  CHECK(words({.decode = 2}, 2) == "worker-0:cuda:0 worker-1:cuda:1");
  CHECK(words({.prefill = 1, .decode = 1}, 8) == "prefill-0:cuda:0 decode-0:cuda:1");
}

TEST_CASE("more workers than GPUs are refused with both numbers, unless a GPU is named for them") {
  for (const PlacementRequest& many :
       {PlacementRequest{.prefill = 1, .decode = 2}, PlacementRequest{.prefill = 2},
        PlacementRequest{.decode = 3}}) {
    CHECK(words(many, 2).find("refused: 3 workers for 2 GPUs: ") == 0);
  }
  CHECK(words({.prefill = 1, .decode = 1}, 1).find("refused: 2 workers for 1 GPU: ") == 0);
  CHECK(words({.device = "cuda:0", .prefill = 1, .decode = 1}, 1) ==
        "prefill-0:cuda:0/2 decode-0:cuda:0/2");
  CHECK(words({.device = "cuda:1", .prefill = 1, .decode = 2}, 2) ==
        "prefill-0:cuda:1/3 decode-0:cuda:1/3 decode-1:cuda:1/3");
  CHECK(words({.device = "cuda"}, 2) == "worker-0:cuda");
}

TEST_CASE("a list of GPUs is dealt out in order, one entry a worker") {
  CHECK(words({.device = "cuda:2,cuda:1"}, 4) == "prefill-0:cuda:2 decode-0:cuda:1");
  CHECK(words({.device = "cuda:0,cuda:0,cuda:1", .prefill = 2, .decode = 1}, 2) ==
        "prefill-0:cuda:0/2 prefill-1:cuda:0/2 decode-0:cuda:1");
  CHECK(words({.device = "cuda,cuda:0", .prefill = 0}, 2) == "worker-0:cuda/2 worker-1:cuda:0/2");
  CHECK(words({.device = "cuda:0,cuda:1", .prefill = 1, .decode = 2}, 2)
            .find("refused: 3 workers for 2 devices: ") == 0);
  CHECK(words({.device = "cuda:0,cpu"}, 2).find("refused: --device cuda:0,cpu: ") == 0);
  CHECK(words({.device = "cuda:0,auto"}, 2).find("refused: ") == 0);
}

}  // namespace
}  // namespace headrace::cli
