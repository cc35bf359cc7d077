#include "worker/nccl_notes.h"

#include <string>
#include <utility>

#include "protocol/check.h"
#include "worker/fields.h"

namespace headrace::worker {
namespace {

// A note is its index in the variant, then its fields as u32; an id's bytes last.
using namespace nccl_note;

template <class T>
void write(FieldWriter& w, const T& n) {
  w.put(n.epoch);
}
void write(FieldWriter& w, const Id& n) {
  w.put(n.epoch);
  w.put(n.id);
}
void write(FieldWriter& w, const Credit& n) { w.put(n.posted); }
void write(FieldWriter& w, const Offer& n) {
  CHECK(!n.sizes.empty() && n.sizes.size() <= kNcclBatchMax);
  w.put(n.epoch);
  w.put(n.batch);
  for (const uint32_t size : n.sizes) w.put(size);
}
void write(FieldWriter& w, const Go& n) {
  w.put(n.epoch);
  w.put(n.batch);
}
void write(FieldWriter&, const Bye&) {}

template <class T>
bool read(FieldReader& r, T& n) {
  n.epoch = r.get<uint32_t>();
  return n.epoch > 0;
}
bool read(FieldReader& r, Id& n) {
  n.epoch = r.get<uint32_t>();
  n.id = r.get<NcclId>();
  return n.epoch > 0;
}
bool read(FieldReader& r, Credit& n) {
  n.posted = r.get<uint32_t>();
  return true;
}
bool read(FieldReader& r, Offer& n) {
  n.epoch = r.get<uint32_t>();
  n.batch = r.get<uint32_t>();
  const size_t count = r.left() / sizeof(uint32_t);
  if (count == 0 || count > kNcclBatchMax) return false;
  for (size_t i = 0; i < count; ++i) {
    n.sizes.push_back(r.get<uint32_t>());
    if (n.sizes.back() == 0 || n.sizes.back() > kLaneSlotMax) return false;
  }
  return n.epoch > 0;
}
bool read(FieldReader& r, Go& n) {
  n.epoch = r.get<uint32_t>();
  n.batch = r.get<uint32_t>();
  return n.epoch > 0;
}
bool read(FieldReader&, Bye&) { return true; }

template <size_t I = 0>
Result<NcclNote> read_kind(size_t kind, FieldReader& r) {
  if constexpr (I == std::variant_size_v<NcclNote>) {
    return error(Errc::kInvalid, "a lane's note of unknown kind");
  } else {
    if (kind != I) return read_kind<I + 1>(kind, r);
    std::variant_alternative_t<I, NcclNote> note;
    if (!read(r, note) || !r.finished()) {
      return error(Errc::kInvalid, "a lane's note of kind " + std::to_string(I) + " is malformed");
    }
    return NcclNote(std::move(note));
  }
}

}  // namespace

Bytes encode_nccl(const NcclNote& note) {
  FieldWriter w;
  w.put(static_cast<uint8_t>(note.index()));
  std::visit([&](const auto& n) { write(w, n); }, note);
  return w.take();
}

Result<NcclNote> decode_nccl(std::span<const std::byte> note) {
  if (note.empty() || note.size() > kLaneNoteMax) {
    return error(Errc::kInvalid, "a lane's note has " + std::to_string(note.size()) + " bytes");
  }
  FieldReader r(note.subspan(1));
  return read_kind(static_cast<size_t>(note[0]), r);
}

}  // namespace headrace::worker
