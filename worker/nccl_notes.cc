#include "worker/nccl_notes.h"

#include <bit>
#include <cstring>
#include <utility>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

static_assert(std::endian::native == std::endian::little);

// A note is its index in the variant, then its fields as u32, little-endian; an id's bytes last.
class Writer {
 public:
  explicit Writer(size_t kind) {
    bytes_.reserve(kLaneNoteMax);
    bytes_.push_back(static_cast<std::byte>(kind));
  }
  void word(uint32_t value) { append(std::as_bytes(std::span(&value, 1))); }
  void append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint32_t word() {
    uint32_t value = 0;
    copy(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void copy(std::span<std::byte> to) {
    if (bytes_.size() < to.size()) {
      ok_ = false;
      bytes_ = {};
      return;
    }
    std::memcpy(to.data(), bytes_.data(), to.size());
    bytes_ = bytes_.subspan(to.size());
  }
  size_t words_left() const { return bytes_.size() / sizeof(uint32_t); }
  bool finished() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

using namespace nccl_note;

template <class T>
void write(Writer& w, const T& n) {
  w.word(n.epoch);
}
void write(Writer& w, const Id& n) {
  w.word(n.epoch);
  w.append(n.id);
}
void write(Writer& w, const Credit& n) { w.word(n.posted); }
void write(Writer& w, const Offer& n) {
  CHECK(!n.sizes.empty() && n.sizes.size() <= kNcclBatchMax);
  w.word(n.epoch);
  w.word(n.batch);
  for (const uint32_t size : n.sizes) w.word(size);
}
void write(Writer& w, const Go& n) {
  w.word(n.epoch);
  w.word(n.batch);
}
void write(Writer&, const Bye&) {}

template <class T>
bool read(Reader& r, T& n) {
  n.epoch = r.word();
  return n.epoch > 0;
}
bool read(Reader& r, Id& n) {
  n.epoch = r.word();
  r.copy(n.id);
  return n.epoch > 0;
}
bool read(Reader& r, Credit& n) {
  n.posted = r.word();
  return true;
}
bool read(Reader& r, Offer& n) {
  n.epoch = r.word();
  n.batch = r.word();
  const size_t count = r.words_left();
  if (count == 0 || count > kNcclBatchMax) return false;
  for (size_t i = 0; i < count; ++i) {
    n.sizes.push_back(r.word());
    if (n.sizes.back() == 0 || n.sizes.back() > kLaneSlotMax) return false;
  }
  return n.epoch > 0;
}
bool read(Reader& r, Go& n) {
  n.epoch = r.word();
  n.batch = r.word();
  return n.epoch > 0;
}
bool read(Reader&, Bye&) { return true; }

template <size_t I = 0>
Result<NcclNote> read_kind(size_t kind, Reader& r) {
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
  Writer w(note.index());
  std::visit([&](const auto& n) { write(w, n); }, note);
  return w.take();
}

Result<NcclNote> decode_nccl(std::span<const std::byte> note) {
  if (note.empty() || note.size() > kLaneNoteMax) {
    return error(Errc::kInvalid, "a lane's note has " + std::to_string(note.size()) + " bytes");
  }
  Reader r(note.subspan(1));
  return read_kind(static_cast<size_t>(note[0]), r);
}

}  // namespace headrace::worker
