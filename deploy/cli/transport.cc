#include "deploy/cli/transport.h"

#include <utility>

#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "worker/nccl_library.h"

namespace headrace::cli {

void TransportOptions::add_to(CLI::App& command) {
  command
      .add_option("--handoff", handoff,
                  "How KV goes between workers: auto (NCCL between GPUs where it is there and "
                  "allowed, else tcp), tcp, or nccl (as auto, and no start without NCCL)")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool right = text == "auto" || text == "tcp" || text == "nccl";
            return right ? std::string()
                         : "takes auto, tcp or nccl, not '" + text.substr(0, 40) + "'";
          },
          "", "way"))
      ->capture_default_str()
      ->group("Hand-off");
  command
      .add_option("--nccl-library", nccl_library,
                  "FILE of NCCL; default: libnccl.so.2 as the loader finds it")
      ->group("Hand-off");
  command
      .add_flag("--trust-links", trust_links,
                "NCCL also to workers on other hosts. It neither encrypts nor asks who is there: "
                "only where nobody else is on the network between them")
      ->group("Hand-off");
}

std::vector<std::string> TransportOptions::arguments() const {
  std::vector<std::string> words{"--handoff", handoff};
  if (!nccl_library.empty()) words.insert(words.end(), {"--nccl-library", nccl_library});
  if (trust_links) words.push_back("--trust-links");
  return words;
}

decltype(worker::WorkerOptions::lanes) TransportOptions::Choice::maker() const {
  if (!lanes) return {};
  return [options = *lanes](std::shared_ptr<Strand> strand, Random& random,
                            uint64_t slot_bytes) -> std::shared_ptr<worker::LaneSource> {
    worker::NcclLanesOptions sized = options;
    sized.slot_bytes = static_cast<uint32_t>(slot_bytes);
    auto made = worker::make_nccl_lanes(std::move(strand), random, sized);
    if (made) return std::move(*made);
    say("hand-offs go over tcp: " + made.error().message);
    return nullptr;
  };
}

Result<TransportOptions::Choice> TransportOptions::choose(const std::string& device) const {
  const std::string unused = !nccl_library.empty() ? "; --nccl-library is not used"
                             : trust_links         ? "; --trust-links is not used"
                                                   : "";
  const auto tcp = [](const std::string& why) {
    return Choice{std::nullopt, "hand-offs go over tcp: " + why};
  };
  if (handoff == "tcp") return unused.empty() ? Choice() : tcp("--handoff tcp" + unused);
  const auto gpu = gpu_of(device);
  if (!gpu) {
    const std::string why = "is for GPUs, and device " + device + " is none";
    if (handoff == "nccl") return error(Errc::kInvalid, "--handoff nccl " + why);
    return unused.empty() ? Choice() : tcp("NCCL " + why + unused);
  }
  worker::NcclLanesOptions options;
  options.library.path = nccl_library;
  options.library.ordinal = *gpu;
  options.trust_links = trust_links;
  const auto library = worker::open_nccl(options.library);
  if (library) return Choice{options, worker::nccl_sentence((*library)->version(), options)};
  const std::string& missing = library.error().message;
  if (handoff == "auto") return tcp(missing);
  const std::string named = nccl_library.empty() ? "" : " --nccl-library " + nccl_library;
  return error(Errc::kUnavailable, "--handoff nccl" + named + ": " + missing);
}

}  // namespace headrace::cli
