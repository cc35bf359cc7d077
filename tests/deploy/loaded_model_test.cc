#include "deploy/cli/loaded_model.h"

#include <doctest/doctest.h>

#include "kernels/cuda_device.h"
#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST_CASE("KV blocks: some contexts, a quarter of the memory, one context at least") {
  ModelCard card;
  card.context = 8192;
  card.block_tokens = 32;
  card.block_bytes = 1 << 20;
  CHECK(choose_blocks(card, 4, 64 * kGiB) == 4 * 256);
  CHECK(choose_blocks(card, 4, 2 * kGiB) == 512);
  CHECK(choose_blocks(card, 4, 0) == 256);
  card.context = 512;  // small contexts get 64 MiB
  CHECK(choose_blocks(card, 4, 64 * kGiB) == 64);
  card.block_bytes = 1 << 10;
  CHECK(choose_blocks(card, 4, 64 * kGiB) == 65536);
  card.context = 500;  // the last block is not full
  CHECK(choose_blocks(card, 1, 0) == 16);
}

TEST_CASE("a part of a GPU's memory has a reserve of its own") {
  CHECK(share_of(8 * kGiB, 1) == 8 * kGiB - kernels::kCudaReserve);
  CHECK(share_of(8 * kGiB, 0.5) == 4 * kGiB - kernels::kCudaReserve);
  CHECK(share_of(kGiB, 0.5) == 0);
}

TEST_CASE("a GPU holds as many blocks as its KV is smaller") {
  const auto file = worker::ModelFile::open(test_model("tiny/q8_0.gguf"));
  REQUIRE(file);
  const auto blocks = [&](kernels::KvType type) {
    return choose_gpu_blocks((*file)->card({.block_tokens = 64, .kv_type = type}), 512,
                             kGiB * 5 / 8);
  };
  const uint32_t halves = blocks(kernels::KvType::kF16), bytes = blocks(kernels::KvType::kFp8);
  CHECK(blocks(kernels::KvType::kBf16) == halves);
  CHECK(blocks(kernels::KvType::kInt8) == bytes);
  // Of 16 dims, 2 bytes each; or 1 byte each, and a scale of 2.
  CHECK(choose_gpu_blocks((*file)->card({.block_tokens = 64}), 512, 1 << 20) == 0);
  CHECK(bytes * 18.0 == doctest::Approx(halves * 32.0).epsilon(0.001));
}

TEST_CASE("a GPU too small for a long context's rotations still gets blocks") {
  ModelCard card;
  card.context = 1 << 20;
  card.head_dim = 128;
  card.block_tokens = 32;
  card.block_bytes = 1 << 20;
  // Scratch, and ten blocks with the rotations of their tokens.
  const uint64_t need = kGiB / 4 + 10 * ((1 << 20) + 32 * 128 * 4);
  CHECK(choose_gpu_blocks(card, 0, need) == 10);
  CHECK(choose_gpu_blocks(card, 0, need - 1) == 9);
}

TEST_CASE("KV blocks that the memory does not hold are refused with both numbers") {
  ModelCard card;
  card.block_bytes = 1 << 20;
  CHECK(check_blocks(card, 1024, kGiB).ok());
  const Status status = check_blocks(card, 1025, kGiB);
  CHECK(status.code == Errc::kOverloaded);
  CHECK(status.message.find("--kv-blocks 1025 needs 1.07 GB, 1.07 GB are") != std::string::npos);
  CHECK(check_blocks(card, UINT32_MAX, kGiB).code == Errc::kOverloaded);
}

TEST_CASE("threads are pinned where each has a processor, and refused elsewhere") {
  EngineOptions options;
  options.device = "cpu:portable";
  options.threads = 1;
  options.pin_threads = true;
  CHECK(check_pinning(options).ok());
  options.threads = 1000;
  CHECK(check_pinning(options).message.find("1000 threads, and this process may use") !=
        std::string::npos);
  CHECK_FALSE(load_model(test_model("tiny/q8_0.gguf"), options, 1, false));
  options.pin_threads = false;
  CHECK(check_pinning(options).ok());
  options.pin_threads = true;
  options.device = "reference";
  CHECK(check_pinning(options).message.find("device reference is none") != std::string::npos);
}

TEST_CASE("a model is loaded with all that a worker needs") {
  EngineOptions options;
  options.device = "reference";
  options.block_tokens = 16;
  auto loaded = load_model(test_model("script/base.gguf"), options, 1, false);
  REQUIRE(loaded);
  CHECK(loaded->card().context == 512);
  CHECK(loaded->card().block_tokens == 16);
  CHECK(loaded->limits.read.empty());  // not measured for the reference
  CHECK(!loaded->tokenizer->empty());
  const auto worker = loaded->worker_options(Role::kDecode, "decode-7");
  CHECK(worker.name == "decode-7");
  CHECK(worker.pid == static_cast<uint64_t>(getpid()));
  CHECK(worker.token_budget <= loaded->engine->rows_max());
}

TEST_CASE("errors name the file, or what this processor lacks") {
  EngineOptions options;
  const auto none = load_model("/no/such/model", options, 1, false);
  REQUIRE(!none);
  CHECK(none.error().message.find("/no/such/model") != std::string::npos);
}

}  // namespace
}  // namespace headrace::cli
