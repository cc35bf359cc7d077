#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "protocol/link.h"
#include "protocol/result.h"
#include "worker/nccl_driver.h"

namespace headrace::worker {

// What the two ends of an NCCL lane tell each other, over the channel of their hand-off. An epoch
// names one communicator of a prefill worker's; a higher one replaces it.
//
//   P                                       D
//   Join{epoch}                      ->         this lane goes over that communicator
//                                    <-  Ready: not there yet, and nothing is in its way
//   Id (minted only now)             ->         both open it
//                                    <-  Have:  it is there, or being opened
//                                    <-  Credit: so many slots were posted here
//   Offer: a batch of full slots     ->
//                                    <-  Go:    the receives are launched; P launches the sends
//   Broken: aborted here             <->
//                                    <-  Bye:   nothing will be launched here any more

constexpr size_t kNcclBatchMax = 4;  // slots launched at once, so that others get their turn

namespace nccl_note {

struct Join {
  uint32_t epoch = 0;
  bool operator==(const Join&) const = default;
};
struct Ready {
  uint32_t epoch = 0;
  bool operator==(const Ready&) const = default;
};
struct Have {
  uint32_t epoch = 0;
  bool operator==(const Have&) const = default;
};
struct Id {
  uint32_t epoch = 0;
  NcclId id{};
  bool operator==(const Id&) const = default;
};
struct Credit {
  uint32_t posted = 0;  // in all, by this lane
  bool operator==(const Credit&) const = default;
};
struct Offer {
  uint32_t epoch = 0;
  uint32_t batch = 0;           // from 1, by lane
  std::vector<uint32_t> sizes;  // 1 to kNcclBatchMax, bytes of each
  bool operator==(const Offer&) const = default;
};
struct Go {
  uint32_t epoch = 0;
  uint32_t batch = 0;
  bool operator==(const Go&) const = default;
};
struct Broken {
  uint32_t epoch = 0;
  bool operator==(const Broken&) const = default;
};
struct Bye {
  bool operator==(const Bye&) const = default;
};

}  // namespace nccl_note

using NcclNote = std::variant<nccl_note::Join, nccl_note::Ready, nccl_note::Have, nccl_note::Id,
                              nccl_note::Credit, nccl_note::Offer, nccl_note::Go, nccl_note::Broken,
                              nccl_note::Bye>;

Bytes encode_nccl(const NcclNote& note);
// Any bytes: kInvalid, never a crash.
Result<NcclNote> decode_nccl(std::span<const std::byte> note);

}  // namespace headrace::worker
