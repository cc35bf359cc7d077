#include "kernels/kv.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace headrace::kernels;

TEST_CASE("KV types have names and sizes, scales included") {
  std::set<std::string> names;
  for (const KvType t : {KvType::kF16, KvType::kF32, KvType::kBf16, KvType::kFp8, KvType::kInt8})
    names.insert(name(t));
  CHECK(names == std::set<std::string>{"f16", "f32", "bf16", "fp8", "int8"});
  const auto token = [](KvType t) { return KvLayout{t, 2, 3, 64, 16}.token_bytes(); };
  CHECK(token(KvType::kF32) == 2 * 3 * 2 * 64 * 4);
  CHECK(token(KvType::kBf16) == 2 * 3 * 2 * 64 * 2);
  CHECK(token(KvType::kInt8) == 2 * 3 * 2 * (64 + 2));
  CHECK(token(KvType::kFp8) == token(KvType::kInt8));
}
