#include "deploy/cli/placement.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "deploy/cli/options.h"

namespace headrace::cli {

namespace {

struct Counts {
  int prefill;
  int decode;
};

// For so many devices that each shall have a worker; 0: for a machine's processor.
Counts counts(const PlacementRequest& request, int devices) {
  if (request.prefill && request.decode) return {*request.prefill, *request.decode};
  if (devices == 0) return {request.prefill.value_or(1), request.decode.value_or(1)};
  if (request.prefill) return {*request.prefill, std::max(1, devices - *request.prefill)};
  if (request.decode) return {std::max(0, devices - *request.decode), *request.decode};
  if (devices == 1) return {0, 1};
  const int prefill = std::max(1, (devices + 1) / 3);
  return {prefill, devices - prefill};
}

std::string several(int count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::vector<std::string> parts(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) out.push_back(part);
  return out;
}

// The device of each worker.
Result<std::vector<std::string>> devices_of(const std::string& asked, int workers, int gpus) {
  const std::vector<std::string> named = parts(asked);
  const auto count = static_cast<size_t>(workers);
  if (named.size() > 1) {
    for (const std::string& one : named)
      if (!gpu_of(one) || one == "auto")
        return error(Errc::kInvalid, "--device " + asked + ": a list is of GPUs, as cuda:0,cuda:1");
    if (named.size() == count) return named;
    return error(Errc::kInvalid,
                 several(workers, "worker") + " for " +
                     several(static_cast<int>(named.size()), "device") + ": --device " + asked +
                     " names one for each; change --prefill and --decode, or the list");
  }
  if (asked != "auto" || gpus == 0) return std::vector<std::string>(count, asked);
  if (workers > gpus)
    return error(Errc::kInvalid, several(workers, "worker") + " for " + several(gpus, "GPU") +
                                     ": each has a GPU of its own unless --device says which they "
                                     "share, as --device cuda:0 for all or a list with one entry "
                                     "a worker; or change --prefill and --decode");
  std::vector<std::string> out;
  for (int i = 0; i < workers; ++i) out.push_back("cuda:" + std::to_string(i));
  return out;
}

}  // namespace

Result<std::vector<Placed>> place_workers(const PlacementRequest& request, int gpus) {
  const std::vector<std::string> named = parts(request.device);
  const bool processor = request.device == "auto" ? gpus == 0 : !gpu_of(named.front());
  const int devices = processor                  ? 0
                      : request.device == "auto" ? gpus
                                                 : static_cast<int>(named.size());
  const Counts count = counts(request, devices);
  const auto where = devices_of(request.device, count.prefill + count.decode, gpus);
  if (!where) return where.error();
  std::vector<Placed> placed;
  const bool both = count.prefill == 0;
  for (int i = 0; i < count.prefill; ++i)
    placed.push_back({"prefill-" + std::to_string(i), "prefill", "", 1});
  for (int i = 0; i < count.decode; ++i)
    placed.push_back(
        {(both ? "worker-" : "decode-") + std::to_string(i), both ? "both" : "decode", "", 1});
  std::map<int, int> on_gpu;
  for (const std::string& device : *where)
    if (const auto gpu = gpu_of(device)) ++on_gpu[*gpu];
  for (size_t i = 0; i < placed.size(); ++i) {
    placed[i].device = (*where)[i];
    if (const auto gpu = processor ? std::nullopt : gpu_of(placed[i].device))
      placed[i].share = 1.0 / on_gpu[*gpu];
  }
  return placed;
}

}  // namespace headrace::cli
