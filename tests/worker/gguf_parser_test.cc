#include "worker/gguf_parser.h"

#include <doctest/doctest.h>

#include "tests/worker/gguf_builder.h"
#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

std::string fault_of(const std::string& path) {
  const auto file = GgufFile::open(path);
  return file ? "" : file.error().message.substr(path.size() + 2);
}

std::string fault_of_bytes(const std::string& bytes) {
  const TempFile file(bytes);
  return fault_of(file.path());
}

TEST_CASE("each malformed file is refused by a line that names file and fault") {
  const auto manifest = read_json(test_model("bad/manifest.json"));
  REQUIRE(manifest.size() >= 17);
  for (const auto& item : manifest.items()) {
    const std::string name = item.key();
    const std::string path = test_model("bad/" + name + ".gguf");
    const auto file = GgufFile::open(path);
    CAPTURE(name);
    CHECK(file.has_value() == (item.value()["right"] == "load"));
    if (file) continue;
    CHECK(file.error().code == Errc::kInvalid);
    CHECK(file.error().message.starts_with(path + ": "));
    CHECK(file.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("the line says what is wrong") {
  const auto fault = [](const char* name) {
    return fault_of(test_model("bad/" + std::string(name) + ".gguf"));
  };
  CHECK(fault("type_q4_k") ==
        "tensor token_embd.weight has type Q4_K, which is not supported yet; supported: F32, F16, "
        "BF16, Q8_0, Q4_0, Q4_1");
  CHECK(fault("type_999").starts_with("tensor token_embd.weight has type number 999,"));
  CHECK(fault("empty") == "is empty");
  CHECK(fault("text") == "is not a GGUF file: it does not begin with the letters GGUF");
  CHECK(fault("safetensors") ==
        "looks like safetensors, which is not supported yet; give a GGUF file");
  CHECK(fault("zip") == "is a zip archive (a PyTorch checkpoint?), not a GGUF file");
  CHECK(fault("magic") == "is in an older format than GGUF, which is not supported");
  CHECK(fault("version_9") == "has GGUF version 9; supported: 2, 3");
  CHECK(fault("cut_header") == "ends inside its header (truncated?)");
  CHECK(fault("cut_data").ends_with("lies beyond the end of the file (truncated?)"));
  CHECK(fault("many_entries") ==
        "announces 1152921504606846976 metadata entries; the limit is 65536");
  CHECK(fault("same_name") == "has two tensors blk.0.attn_q.weight");
  CHECK(fault("same_key") == "has two metadata entries llama.block_count");
  CHECK(fault("alignment_0") == "general.alignment is 0; it has to be a power of two up to 4096");
  CHECK(fault("trailing") == "has 4096 bytes after the last tensor");
  CHECK(fault("overlap").ends_with("overlap"));
  CHECK(fault("nested_array") ==
        "has metadata entry general.tags, an array of arrays: not supported");
}

TEST_CASE("a big-endian file is called so") {
  std::string bytes = GgufBuilder().bytes();
  std::swap(bytes[4], bytes[7]);
  CHECK(fault_of_bytes(bytes) == "is a big-endian GGUF file, which is not supported");
}

TEST_CASE("a file cut anywhere is refused") {
  const std::string bytes = GgufBuilder().bytes();
  REQUIRE(fault_of_bytes(bytes).empty());
  for (size_t n = 0; n < bytes.size(); n += n < 3000 ? 7 : 1999) {
    CAPTURE(n);
    CHECK_FALSE(fault_of_bytes(bytes.substr(0, n)).empty());
  }
}

// No byte of the header may crash the reader or make it allocate without bound, whatever it says;
// sanitizer builds watch.
TEST_CASE("a file with any byte changed loads or is refused") {
  const std::string bytes = GgufBuilder().bytes();
  TempFile file(bytes);
  int refused = 0;
  for (size_t at = 0; at < 2600; at++) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      file.patch(at, value);
      const auto gguf = GgufFile::open(file.path());
      if (!gguf) {
        refused++;
        CHECK(gguf.error().message.starts_with(file.path() + ": "));
        continue;
      }
      for (const GgufTensor& t : gguf->tensors()) CHECK(t.offset + t.bytes <= gguf->file().size());
    }
    file.patch(at, bytes[at]);
  }
  CHECK(refused > 1000);
}

TEST_CASE("limits are named") {
  GgufBuilder long_key;
  long_key.integer(std::string(257, 'k'), 1);
  CHECK(fault_of_bytes(long_key.bytes()) == "has a metadata key of 257 bytes; the limit is 256");
  GgufBuilder longest_key;
  longest_key.integer(std::string(256, 'k'), 1);
  CHECK(fault_of_bytes(longest_key.bytes()).empty());
}

}  // namespace
}  // namespace headrace::worker
