#include "worker/nccl_notes.h"

#include <doctest/doctest.h>

#include "protocol/random.h"

namespace headrace::worker {
namespace {

using namespace nccl_note;

NcclId some_id() {
  NcclId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = std::byte(i * 3);
  return id;
}

const std::vector<NcclNote> kNotes = {Join{1},
                                      Ready{2},
                                      Have{3},
                                      Id{4, some_id()},
                                      Credit{5},
                                      Offer{6, 7, {8}},
                                      Offer{6, 7, {1, 2, 3, kLaneSlotMax}},
                                      Go{9, 10},
                                      Broken{11},
                                      Bye{}};

TEST_CASE("a note comes back as it was") {
  for (const NcclNote& note : kNotes) {
    const Bytes bytes = encode_nccl(note);
    CHECK(bytes.size() <= kLaneNoteMax);
    const auto back = decode_nccl(bytes);
    REQUIRE(back.has_value());
    CHECK(*back == note);
  }
}

TEST_CASE("a note that is cut, longer or of another kind is refused") {
  for (const NcclNote& note : kNotes) {
    Bytes bytes = encode_nccl(note);
    bytes.push_back({});
    CHECK(decode_nccl(bytes).has_value() == false);
    bytes.resize(bytes.size() - 2);
    CHECK(decode_nccl(bytes).has_value() == false);
  }
  CHECK(decode_nccl({}).has_value() == false);
  CHECK(decode_nccl(Bytes(1, std::byte(std::variant_size_v<NcclNote>))).has_value() == false);
  CHECK(decode_nccl(Bytes(kLaneNoteMax + 1)).has_value() == false);
}

TEST_CASE("sizes of an offer are within the limits; no epoch is zero") {
  const auto refused = [](Bytes bytes, size_t at) {
    for (size_t i = at; i < at + 4; ++i) bytes[i] = {};
    return !decode_nccl(bytes).has_value();
  };
  CHECK(refused(encode_nccl(Offer{6, 7, {8}}), 9));
  CHECK(refused(encode_nccl(Offer{6, 7, {8}}), 1));
  CHECK(refused(encode_nccl(Join{1}), 1));
  Bytes large = encode_nccl(Offer{6, 7, {kLaneSlotMax}});
  large[9] = std::byte{1};
  CHECK(decode_nccl(large).has_value() == false);
}

TEST_CASE("any bytes: an answer, never a crash") {
  SeededRandom random(7);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes(random.next() % 40);
    for (std::byte& b : bytes) b = std::byte(random.next());
    if (!bytes.empty()) bytes[0] = std::byte(random.next() % 10);
    if (const auto note = decode_nccl(bytes)) CHECK(encode_nccl(*note) == bytes);
  }
}

}  // namespace
}  // namespace headrace::worker
