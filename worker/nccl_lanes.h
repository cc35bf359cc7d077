#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "protocol/random.h"
#include "protocol/strand.h"
#include "worker/nccl_library.h"
#include "worker/payload_lane.h"

namespace headrace::worker {

struct NcclLanesOptions {
  NcclLibraryOptions library;
  bool trust_links = false;        // --trust-links: also to other hosts, where NCCL is plain text
  uint32_t slot_bytes = 8u << 20;  // the most that one slot carries
};

// NCCL for one device's hand-offs: the library, its thread, its pairs. Without the library, or in a
// build without NCCL: why, in words; the hand-offs go over tcp then. To be used, and destroyed, on
// the strand, behind all its lanes; the end may take NcclThread::kLeaveAfter.
Result<std::unique_ptr<LaneSource>> make_nccl_lanes(std::shared_ptr<Strand> strand, Random& random,
                                                    const NcclLanesOptions& options);

// What a start says of it: "NCCL 2.28.9 to workers of this host; tcp to others ...".
std::string nccl_sentence(const Result<std::unique_ptr<LaneSource>>& lanes,
                          const NcclLanesOptions& options);
// The same where the library is there, of this version.
std::string nccl_sentence(uint32_t version, const NcclLanesOptions& options);

// The same for all processes of one machine since it was started, and for no others. 0: unknown,
// which is no machine's.
uint64_t host_number(const std::string& boot_id_file = "/proc/sys/kernel/random/boot_id");

}  // namespace headrace::worker
