#include "worker/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace headrace::worker {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kWindow = size_t{1} << 20;

// Tensor types by their number in the file; those without a source type are not supported yet.
struct TensorType {
  uint32_t number;
  std::string_view name;
};
constexpr TensorType kOtherTypes[] = {
    {6, "Q5_0"},   {7, "Q5_1"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},
    {13, "Q5_K"},  {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},
    {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},
    {35, "TQ2_0"}, {39, "MXFP4"},
};
constexpr std::string_view kSupportedTypes = "F32, F16, BF16, Q8_0, Q4_0, Q4_1";

// Bytes of a number or bool; 0 for other types.
uint64_t width(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

// What a file that is no GGUF seems to be.
std::string foreign(std::span<const std::byte> head) {
  char text[16] = {};
  std::memcpy(text, head.data(), std::min(head.size(), sizeof text));
  const std::string_view first(text, 4);
  if (first == "FUGG" || first == "ggml" || first == "ggjt" || first == "lmgg" || first == "tjgg" ||
      first == "GGML")
    return "is in an older format than GGUF, which is not supported";
  if (first == std::string_view("PK\x03\x04", 4))
    return "is a zip archive (a PyTorch checkpoint?), not a GGUF file";
  if (text[8] == '{') return "looks like safetensors, which is not supported yet; give a GGUF file";
  return "is not a GGUF file: it does not begin with the letters GGUF";
}

bool power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

std::string number(uint64_t n) { return std::to_string(n); }

// For messages: the file's own words, without anything that could spoil a terminal.
std::string shown(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= ' ' && c != 0x7f ? c : '?';
  return out;
}

}  // namespace

Status GgufParser::parse() {
  if (!parse_magic()) return status_;
  file_.version_ = u32();
  const uint64_t tensors = u64(), entries = u64();
  if (!status_.ok()) return status_;
  if (const uint32_t v = file_.version_; v != 2 && v != 3) {
    const bool big = v == 0x02000000 || v == 0x03000000;
    return file_.fault(big ? "is a big-endian GGUF file, which is not supported"
                           : "has GGUF version " + number(v) + "; supported: 2, 3");
  }
  if (entries > kGgufEntriesMax)
    return file_.fault("announces " + number(entries) + " metadata entries; the limit is " +
                       number(kGgufEntriesMax));
  if (tensors > kGgufTensorsMax)
    return file_.fault("announces " + number(tensors) + " tensors; the limit is " +
                       number(kGgufTensorsMax));
  for (uint64_t i = 0; i < entries; i++)
    if (!parse_entry()) return status_;
  if (!read_alignment()) return status_;
  for (uint64_t i = 0; i < tensors; i++)
    if (!parse_tensor()) return status_;
  if (!place_tensors() || !check_overlaps()) return status_;
  return {};
}

bool GgufParser::fail(std::string fault) {
  if (status_.ok()) status_ = file_.fault(fault);
  return false;
}

bool GgufParser::take(std::span<std::byte> to) {
  if (!status_.ok()) return false;
  if (to.size() > left()) return fail("ends inside its header (truncated?)");
  if (position_ + to.size() > kGgufHeaderBytesMax)
    return fail("has a header of more than " + number(kGgufHeaderBytesMax >> 20) + " MiB");
  while (!to.empty()) {
    const uint64_t begin = position_ - window_begin_;
    if (position_ < window_begin_ || begin >= window_.size()) {
      window_begin_ = position_;
      window_.resize(std::min<uint64_t>(kWindow, left()));
      status_ = file_.file().read(position_, window_);
      if (!status_.ok()) return false;
      continue;
    }
    const size_t n = std::min<uint64_t>(to.size(), window_.size() - begin);
    std::memcpy(to.data(), window_.data() + begin, n);
    to = to.subspan(n);
    position_ += n;
  }
  return true;
}

uint32_t GgufParser::u32() {
  uint32_t v = 0;
  return take(std::as_writable_bytes(std::span(&v, 1))) ? v : 0;
}

uint64_t GgufParser::u64() {
  uint64_t v = 0;
  return take(std::as_writable_bytes(std::span(&v, 1))) ? v : 0;
}

std::string GgufParser::string(uint64_t bytes_max, std::string_view what) {
  const uint64_t n = u64();
  if (!status_.ok()) return {};
  if (n > bytes_max) {
    fail("has " + std::string(what) + " of " + number(n) + " bytes; the limit is " +
         number(bytes_max));
    return {};
  }
  if (n > left()) {
    fail("ends inside its header (truncated?)");
    return {};
  }
  std::string text(n, '\0');
  if (n > 0) take(std::as_writable_bytes(std::span(text.data(), n)));
  return text;
}

bool GgufParser::parse_magic() {
  const uint64_t size = file_.file().size();
  if (size == 0) return fail("is empty");
  std::vector<std::byte> head(std::min<uint64_t>(size, 16));
  status_ = file_.file().read(0, head);
  if (!status_.ok()) return false;
  if (head.size() < 4 || std::memcmp(head.data(), "GGUF", 4) != 0) return fail(foreign(head));
  position_ = 4;
  return true;
}

bool GgufParser::parse_entry() {
  std::string key = string(kGgufKeyBytesMax, "a metadata key");
  GgufValue value;
  value.type = static_cast<GgufType>(u32());
  if (!status_.ok()) return false;
  if (key.empty()) return fail("has a metadata entry without a key");
  if (!parse_value(key, value)) return false;
  const auto [it, fresh] = file_.entries_.try_emplace(std::move(key), std::move(value));
  return fresh || fail("has two metadata entries " + shown(it->first));
}

bool GgufParser::parse_value(const std::string& key, GgufValue& value) {
  if (value.type == GgufType::kString) {
    value.strings.push_back(string(kGgufStringBytesMax, "metadata entry " + shown(key)));
    return status_.ok();
  }
  if (value.type == GgufType::kArray) return parse_array(key, value);
  const uint64_t bytes = width(value.type);
  if (bytes == 0)
    return fail("has metadata entry " + shown(key) + " of type " +
                number(static_cast<uint32_t>(value.type)) + ", which GGUF does not know");
  value.raw.resize(bytes);
  return take(value.raw);
}

bool GgufParser::parse_array(const std::string& key, GgufValue& value) {
  value.element = static_cast<GgufType>(u32());
  value.count = u64();
  if (!status_.ok()) return false;
  if (value.count > kGgufArrayMax)
    return fail("has metadata entry " + shown(key) + " with " + number(value.count) +
                " elements; the limit is " + number(kGgufArrayMax));
  if (value.element == GgufType::kString) {
    if (value.count > left() / sizeof(uint64_t)) return fail("ends inside its header (truncated?)");
    value.strings.reserve(value.count);
    for (uint64_t i = 0; i < value.count && status_.ok(); i++)
      value.strings.push_back(string(kGgufStringBytesMax, "a string of " + shown(key)));
    return status_.ok();
  }
  const uint64_t bytes = width(value.element);
  if (value.element == GgufType::kArray)
    return fail("has metadata entry " + shown(key) + ", an array of arrays: not supported");
  if (bytes == 0)
    return fail("has metadata entry " + shown(key) + ", an array of type " +
                number(static_cast<uint32_t>(value.element)) + ", which GGUF does not know");
  if (value.count * bytes > left()) return fail("ends inside its header (truncated?)");
  value.raw.resize(value.count * bytes);
  return take(value.raw);
}

bool GgufParser::parse_tensor() {
  GgufTensor tensor;
  tensor.name = string(kGgufKeyBytesMax, "a tensor name");
  const uint32_t dims = u32();
  if (!status_.ok()) return false;
  const std::string which = "tensor " + shown(tensor.name);
  if (dims < 1 || dims > kGgufDimsMax)
    return fail(which + " has " + number(dims) + " dimensions; 1 to " + number(kGgufDimsMax) +
                " are possible");
  for (uint32_t i = 0; i < dims; i++) tensor.dims.push_back(u64());
  const uint32_t type = u32();
  tensor.offset = u64();
  if (!status_.ok() || !parse_type(tensor, type, tensor.type) || !size_tensor(tensor)) return false;
  if (!file_.by_name_.try_emplace(tensor.name, file_.tensors_.size()).second)
    return fail("has two tensors " + shown(tensor.name));
  file_.tensors_.push_back(std::move(tensor));
  return true;
}

bool GgufParser::parse_type(const GgufTensor& tensor, uint32_t number_, kernels::SourceType& type) {
  using kernels::SourceType;
  switch (number_) {
    case 0:
      type = SourceType::kF32;
      return true;
    case 1:
      type = SourceType::kF16;
      return true;
    case 2:
      type = SourceType::kQ4_0;
      return true;
    case 3:
      type = SourceType::kQ4_1;
      return true;
    case 8:
      type = SourceType::kQ8_0;
      return true;
    case 30:
      type = SourceType::kBf16;
      return true;
    default:
      break;
  }
  const auto* known = std::find_if(std::begin(kOtherTypes), std::end(kOtherTypes),
                                   [&](const TensorType& t) { return t.number == number_; });
  const std::string what =
      known == std::end(kOtherTypes) ? "number " + number(number_) : std::string(known->name);
  return fail("tensor " + shown(tensor.name) + " has type " + what +
              ", which is not supported yet; supported: " + std::string(kSupportedTypes));
}

// Rows, columns and bytes, none of which may pass what the file can hold.
bool GgufParser::size_tensor(GgufTensor& tensor) {
  const std::string which = "tensor " + shown(tensor.name);
  uint64_t elements = 1;
  for (const uint64_t d : tensor.dims) {
    if (d == 0) return fail(which + " has a dimension of 0");
    if (d > uint64_t{std::numeric_limits<int64_t>::max()} ||
        __builtin_mul_overflow(elements, d, &elements))
      return fail(which + " has impossible dimensions");
  }
  // A block takes at least half a byte a value, so more values than that cannot be in the file.
  if (elements / 2 > file_.file().size())
    return fail(which + " is larger than the file (truncated, or impossible dimensions)");
  const bool blocks = kernels::quantized(kernels::packed_type(tensor.type));
  if (blocks && tensor.cols() % kernels::kGroup != 0)
    return fail(which + " has rows of " + number(tensor.cols()) + " values, not a multiple of " +
                number(kernels::kGroup));
  const uint64_t row = kernels::source_row_bytes(tensor.type, static_cast<int64_t>(tensor.cols()));
  if (__builtin_mul_overflow(row, tensor.rows(), &tensor.bytes))
    return fail(which + " has impossible dimensions");
  return true;
}

bool GgufParser::read_alignment() {
  const std::string key = "general.alignment";
  if (!file_.has(key)) return true;
  const Result<uint64_t> n = file_.integer(key);
  if (!n) {
    status_ = n.error();
    return false;
  }
  if (!power_of_two(*n) || *n > kGgufAlignmentMax)
    return fail(key + " is " + number(*n) + "; it has to be a power of two up to " +
                number(kGgufAlignmentMax));
  alignment_ = *n;
  return true;
}

// Turns offsets from the data section into offsets from the beginning of the file.
bool GgufParser::place_tensors() {
  const uint64_t size = file_.file().size();
  const uint64_t data = (position_ + alignment_ - 1) / alignment_ * alignment_;
  uint64_t last = position_;
  for (GgufTensor& t : file_.tensors_) {
    if (t.offset % alignment_ != 0)
      return fail("tensor " + shown(t.name) + " lies at offset " + number(t.offset) +
                  ", not a multiple of the alignment " + number(alignment_));
    uint64_t end = 0;
    if (__builtin_add_overflow(t.offset, data, &t.offset) ||
        __builtin_add_overflow(t.offset, t.bytes, &end) || end > size)
      return fail("tensor " + shown(t.name) + " lies beyond the end of the file (truncated?)");
    last = std::max(last, end);
  }
  if (size - last >= alignment_ && size > data)
    return fail("has " + number(size - last) + " bytes after the last tensor");
  return true;
}

bool GgufParser::check_overlaps() {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& t : file_.tensors_) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); i++)
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
      return fail("tensors " + shown(order[i - 1]->name) + " and " + shown(order[i]->name) +
                  " overlap");
  return true;
}

}  // namespace headrace::worker
