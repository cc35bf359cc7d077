#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/gguf.h"

namespace headrace::worker {

// Fills a GgufFile from its bytes; used by GgufFile::open only. Reads the header once, through a
// window, and never the tensors' data.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file) : file_(file) {}
  Status parse();

 private:
  // Little-endian cursor over the header. After the first failure all reads give zero and status_
  // says why, so callers check once after several reads.
  bool take(std::span<std::byte> to);
  uint32_t u32();
  uint64_t u64();
  std::string string(uint64_t bytes_max, std::string_view what);
  uint64_t left() const { return file_.file().size() - position_; }
  bool fail(std::string fault);  // keeps the first; always false

  bool parse_magic();
  bool parse_entry();
  bool parse_value(const std::string& key, GgufValue& value);
  bool parse_array(const std::string& key, GgufValue& value);
  bool parse_tensor();
  bool parse_type(const GgufTensor& tensor, uint32_t number, kernels::SourceType& type);
  bool size_tensor(GgufTensor& tensor);
  bool read_alignment();
  bool place_tensors();
  bool check_overlaps();

  GgufFile& file_;
  Status status_;
  uint64_t position_ = 0;      // in the file
  uint64_t window_begin_ = 0;  // of window_, in the file
  std::vector<std::byte> window_;
  uint64_t alignment_ = 32;
};

}  // namespace headrace::worker
