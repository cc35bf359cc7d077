#include "worker/nccl_lanes.h"

#include <xxhash.h>

#include <fstream>
#include <utility>

#include "worker/nccl_pairs.h"
#include "worker/nccl_thread.h"

namespace headrace::worker {
namespace {

// The library and its thread, which have to be there before the pairs and after them.
struct Below {
  NcclThread thread;
};

class Lanes final : Below, public NcclPairs {
 public:
  Lanes(const std::shared_ptr<Strand>& strand, std::unique_ptr<NcclLibrary> library,
        const NcclOptions& options)
      : Below{NcclThread(strand, std::move(library))}, NcclPairs(strand, thread, options) {}
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
  return std::unique_ptr<LaneSource>(std::make_unique<Lanes>(strand, std::move(*library), pairs));
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
