#include "worker/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "worker/gguf_parser.h"

namespace headrace::worker {
namespace {

constexpr std::string_view kTypeNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                           "int32",  "float32", "bool",   "string", "array",
                                           "uint64", "int64",   "float64"};

// An integer of any width, sign-extended; nullopt for other types.
std::optional<int64_t> integer_at(GgufType type, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (type) {
    case GgufType::kUint8:
      return as(uint8_t{});
    case GgufType::kInt8:
      return as(int8_t{});
    case GgufType::kUint16:
      return as(uint16_t{});
    case GgufType::kInt16:
      return as(int16_t{});
    case GgufType::kUint32:
      return as(uint32_t{});
    case GgufType::kInt32:
      return as(int32_t{});
    case GgufType::kInt64:
      return as(int64_t{});
    case GgufType::kUint64: {
      const int64_t v = as(uint64_t{});
      if (v < 0) return std::nullopt;  // past int64: nothing that we read is so large
      return v;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view name(GgufType type) {
  const auto i = static_cast<size_t>(type);
  return i < std::size(kTypeNames) ? kTypeNames[i] : "unknown";
}

std::string_view name(kernels::SourceType type) {
  switch (type) {
    case kernels::SourceType::kF32:
      return "F32";
    case kernels::SourceType::kF16:
      return "F16";
    case kernels::SourceType::kBf16:
      return "BF16";
    case kernels::SourceType::kQ8_0:
      return "Q8_0";
    case kernels::SourceType::kQ4_0:
      return "Q4_0";
    case kernels::SourceType::kQ4_1:
      return "Q4_1";
  }
  return "unknown";
}

uint64_t GgufTensor::rows() const {
  uint64_t n = 1;
  for (size_t i = 1; i < dims.size(); i++) n *= dims[i];  // checked when the file was read
  return n;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  Result<InputFile> file = InputFile::open(path);
  if (!file) return std::move(file).error();
  GgufFile gguf(std::move(*file));
  if (Status s = GgufParser(gguf).parse(); !s.ok()) return s;
  return gguf;
}

const GgufTensor* GgufFile::tensor(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Status GgufFile::mismatch(const std::string& key, std::string_view wanted) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return fault("metadata entry " + key + " is missing");
  return fault("metadata entry " + key + " should be " + std::string(wanted) + ", not " +
               std::string(name(it->second.type)));
}

Result<uint64_t> GgufFile::integer(const std::string& key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.raw.empty() || it->second.type == GgufType::kArray)
    return mismatch(key, "an integer");
  const auto v = integer_at(it->second.type, it->second.raw.data());
  if (!v) return mismatch(key, "an integer");
  if (*v < 0) return fault("metadata entry " + key + " is negative");
  return static_cast<uint64_t>(*v);
}

Result<double> GgufFile::number(const std::string& key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return mismatch(key, "a number");
  if (it->second.type == GgufType::kFloat32) {
    float v;
    std::memcpy(&v, it->second.raw.data(), sizeof v);
    return double{v};
  }
  if (it->second.type == GgufType::kFloat64) {
    double v;
    std::memcpy(&v, it->second.raw.data(), sizeof v);
    return v;
  }
  const Result<uint64_t> v = integer(key);
  if (!v) return v.error();
  return static_cast<double>(*v);
}

Result<bool> GgufFile::flag(const std::string& key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.type != GgufType::kBool) return mismatch(key, "a bool");
  return it->second.raw[0] != std::byte{0};
}

Result<std::string> GgufFile::text(const std::string& key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.type != GgufType::kString)
    return mismatch(key, "a string");
  return it->second.strings[0];
}

Result<std::span<const std::string>> GgufFile::texts(const std::string& key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.type != GgufType::kArray ||
      it->second.element != GgufType::kString)
    return mismatch(key, "an array of strings");
  return std::span<const std::string>(it->second.strings);
}

Result<std::vector<int64_t>> GgufFile::integers(const std::string& key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.type != GgufType::kArray)
    return mismatch(key, "an array of integers");
  const GgufValue& value = it->second;
  std::vector<int64_t> out;
  out.reserve(value.count);
  const size_t width = value.count ? value.raw.size() / value.count : 0;
  for (uint64_t i = 0; i < value.count; i++) {
    // An array of strings has no raw bytes.
    const auto v = width ? integer_at(value.element, value.raw.data() + i * width) : std::nullopt;
    if (!v) return mismatch(key, "an array of integers");
    out.push_back(*v);
  }
  return out;
}

}  // namespace headrace::worker
