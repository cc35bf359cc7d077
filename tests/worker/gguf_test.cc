#include "worker/gguf.h"

#include <doctest/doctest.h>

#include "tests/worker/gguf_builder.h"

namespace headrace::worker {
namespace {

TEST_CASE("entries are read by type, whatever their width") {
  GgufBuilder b;
  b.signed_integer("x.negative", -1);
  b.integers("x.list", {1, -2});
  b.flag("x.flag", true);
  const TempFile file(b.bytes());
  const auto gguf = GgufFile::open(file.path());
  REQUIRE(gguf.has_value());
  CHECK(*gguf->integer("llama.block_count") == 1);
  CHECK(*gguf->number("llama.block_count") == 1.0);
  CHECK(*gguf->number("llama.attention.layer_norm_rms_epsilon") == double{1e-5f});
  CHECK(*gguf->text("general.architecture") == "llama");
  CHECK(gguf->texts("tokenizer.ggml.tokens")->size() == 4);
  CHECK(*gguf->integers("x.list") == std::vector<int64_t>{1, -2});
  CHECK(*gguf->flag("x.flag"));
  CHECK(gguf->version() == 3);
}

TEST_CASE("a missing entry or another type is an error that names the key") {
  GgufBuilder b;
  b.signed_integer("x.negative", -1);
  const TempFile file(b.bytes());
  const auto gguf = GgufFile::open(file.path());
  REQUIRE(gguf.has_value());
  const std::string at = file.path() + ": metadata entry ";
  CHECK(gguf->integer("x.none").error().message == at + "x.none is missing");
  CHECK(gguf->integer("x.negative").error().message == at + "x.negative is negative");
  CHECK(gguf->integer("general.architecture").error().message ==
        at + "general.architecture should be an integer, not string");
  CHECK(gguf->integer("tokenizer.ggml.tokens").error().code == Errc::kInvalid);
  CHECK(gguf->text("llama.block_count").error().message ==
        at + "llama.block_count should be a string, not uint32");
  CHECK(gguf->texts("llama.block_count").error().code == Errc::kInvalid);
  CHECK(gguf->integers("tokenizer.ggml.tokens").error().code == Errc::kInvalid);
  CHECK(gguf->flag("llama.block_count").error().code == Errc::kInvalid);
  CHECK(gguf->number("general.architecture").error().code == Errc::kInvalid);
}

TEST_CASE("tensors are found by name, with their place in the file") {
  const TempFile file(GgufBuilder().bytes());
  const auto gguf = GgufFile::open(file.path());
  REQUIRE(gguf.has_value());
  const GgufTensor* t = gguf->tensor("blk.0.ffn_gate.weight");
  REQUIRE(t != nullptr);
  CHECK(t->rows() == GgufBuilder::kFfn);
  CHECK(t->cols() == GgufBuilder::kDim);
  CHECK(t->bytes == 4 * GgufBuilder::kFfn * GgufBuilder::kDim);
  CHECK(t->offset % 32 == 0);
  float first = 0;
  CHECK(gguf->file().read(t->offset, std::as_writable_bytes(std::span(&first, 1))).ok());
  CHECK(first == 0.5f);
  CHECK(gguf->tensor("blk.1.ffn_gate.weight") == nullptr);
}

}  // namespace
}  // namespace headrace::worker
