#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/matrix.h"
#include "protocol/result.h"
#include "worker/input_file.h"

namespace headrace::worker {

// Reader of GGUF, versions 2 and 3, little endian. The file is foreign: every number in it is
// checked in 64 bits before it is used, and every limit below before anything is allocated, so that
// no file takes more than a small multiple of kGgufHeaderBytesMax of memory to refuse.
inline constexpr uint64_t kGgufEntriesMax = 65'536;
inline constexpr uint64_t kGgufTensorsMax = 65'536;
inline constexpr uint64_t kGgufKeyBytesMax = 256;  // also of a tensor's name
inline constexpr uint64_t kGgufStringBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kGgufArrayMax = uint64_t{4} << 20;         // elements
inline constexpr uint64_t kGgufHeaderBytesMax = uint64_t{64} << 20;  // metadata and tensor table
inline constexpr uint64_t kGgufAlignmentMax = 4096;
inline constexpr uint32_t kGgufDimsMax = 4;

// Metadata types by their number in the file.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
std::string_view name(GgufType type);

// One metadata value. Which members are set depends on `type`.
struct GgufValue {
  GgufType type{};
  GgufType element{};                // of an array
  uint64_t count = 1;                // elements of an array
  std::vector<std::byte> raw;        // numbers and bools, as in the file
  std::vector<std::string> strings;  // one, or those of an array
};

struct GgufTensor {
  std::string name;
  std::vector<uint64_t> dims;  // 1..4, fastest first; all >= 1
  kernels::SourceType type{};
  uint64_t offset = 0;  // from the beginning of the file
  uint64_t bytes = 0;   // offset + bytes <= size of the file

  uint64_t cols() const { return dims[0]; }
  uint64_t rows() const;  // product of the other dims
};
// "F32", "Q4_1", ...
std::string_view name(kernels::SourceType type);

// An opened file whose whole structure has been checked. Move-only.
class GgufFile {
 public:
  static Result<GgufFile> open(const std::string& path);

  const InputFile& file() const { return file_; }
  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue>& entries() const { return entries_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* tensor(const std::string& name) const;  // nullptr: none
  bool has(const std::string& key) const { return entries_.contains(key); }

  // The value of `key` as the type asked for. kInvalid names the key where it is missing or of
  // another kind; integers of any width and sign are one kind when the value fits.
  Result<uint64_t> integer(const std::string& key) const;
  Result<double> number(const std::string& key) const;  // a float, or an integer
  Result<bool> flag(const std::string& key) const;
  Result<std::string> text(const std::string& key) const;
  Result<std::span<const std::string>> texts(const std::string& key) const;
  Result<std::vector<int64_t>> integers(const std::string& key) const;  // an array

  Status fault(std::string_view fault) const { return file_.fault(fault); }

 private:
  friend class GgufParser;
  explicit GgufFile(InputFile file) : file_(std::move(file)) {}
  Status mismatch(const std::string& key, std::string_view wanted) const;

  InputFile file_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue> entries_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace headrace::worker
