#include "worker/nccl_lanes.h"

#include <xxhash.h>

#include <fstream>
#include <utility>

#include "worker/nccl_pairs.h"
#include "worker/nccl_thread.h"

namespace headrace::worker {
namespace {

// The three as one; destroyed from the lanes down.
class Lanes final : public LaneSource {
 public:
  Lanes(std::shared_ptr<Strand> strand, std::unique_ptr<NcclLibrary> library,
        const NcclOptions& options)
      : thread_(strand, std::move(library)), pairs_(std::move(strand), thread_, options) {}
  LaneTerms offer(Incarnation peer, std::string* why) override { return pairs_.offer(peer, why); }
  LaneTerms answer(Incarnation peer, const LaneTerms& offered, std::string* why) override {
    return pairs_.answer(peer, offered, why);
  }
  Status agree(const LaneTerms& offered, const LaneTerms& answered) override {
    return pairs_.agree(offered, answered);
  }
  std::unique_ptr<PayloadLane> lane(LaneEnd end, Incarnation peer, const LaneTerms& terms,
                                    PayloadLane::Host host) override {
    return pairs_.lane(end, peer, terms, std::move(host));
  }
  void sweep() override { pairs_.sweep(); }
  Status health() const override { return pairs_.health(); }

 private:
  NcclThread thread_;
  NcclPairs pairs_;
};

}  // namespace

Result<std::unique_ptr<LaneSource>> make_nccl_lanes(std::shared_ptr<Strand> strand, Random& random,
                                                    const NcclLanesOptions& options) {
  auto library = open_nccl(options.library);
  if (!library) return std::move(library).error();
  NcclOptions pairs;
  pairs.trust_links = options.trust_links;
  pairs.slot_bytes = options.slot_bytes;
  pairs.device = random.next();
  pairs.host = host_number();
  // Unknown: nobody else's.
  if (pairs.host == 0) pairs.host = random.next();
  return std::unique_ptr<LaneSource>(
      std::make_unique<Lanes>(std::move(strand), std::move(*library), pairs));
}

std::string nccl_sentence(const Result<std::unique_ptr<LaneSource>>& lanes,
                          const NcclLanesOptions& options) {
  if (!lanes) return "hand-offs go over tcp: " + lanes.error().message;
  return nccl_sentence((*lanes)->offer({}).version, options);
}

std::string nccl_sentence(uint32_t version, const NcclLanesOptions& options) {
  const std::string name = "NCCL " + std::to_string(version / 10000) + "." +
                           std::to_string(version / 100 % 100) + "." +
                           std::to_string(version % 100);
  if (options.trust_links) {
    return "hand-offs go over " + name +
           ", to other hosts, too: links are declared trusted (NCCL is plain text and lets anybody "
           "in)";
  }
  return "hand-offs go over " + name +
         " to workers of this host, over tcp to others: links are not declared trusted "
         "(--trust-links)";
}

uint64_t host_number(const std::string& boot_id_file) {
  std::ifstream file(boot_id_file);
  std::string id;
  if (!std::getline(file, id) || id.empty()) return 0;
  return XXH3_64bits(id.data(), id.size());
}

}  // namespace headrace::worker
