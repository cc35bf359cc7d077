#include "protocol/prefix_hash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>
#include <cstring>
#include <memory>

#include "protocol/check.h"

namespace headrace {
namespace {

struct FreeMac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

// SipHash-2-4 with 128 bits of output under one key. Setting up costs as much as hashing several
// blocks, so one serves a whole chain.
class SipHash {
 public:
  explicit SipHash(CacheKey key) : context_(EVP_MAC_CTX_new(algorithm())) {
    CHECK(context_ != nullptr);
    std::memcpy(key_.data(), &key.hi, 8);
    std::memcpy(key_.data() + 8, &key.lo, 8);
    size_t size = kSize;
    const std::array<OSSL_PARAM, 2> parameters{
        OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size), OSSL_PARAM_construct_end()};
    CHECK(EVP_MAC_CTX_set_params(context_.get(), parameters.data()) == 1);
  }

  PrefixHash operator()(const void* first, size_t first_size, const void* second,
                        size_t second_size) {
    CHECK(EVP_MAC_init(context_.get(), key_.data(), key_.size(), nullptr) == 1);
    add(first, first_size);
    add(second, second_size);
    std::array<unsigned char, kSize> out;
    size_t size = 0;
    CHECK(EVP_MAC_final(context_.get(), out.data(), &size, out.size()) == 1 && size == kSize);
    PrefixHash hash;
    std::memcpy(&hash.hi, out.data(), 8);
    std::memcpy(&hash.lo, out.data() + 8, 8);
    return hash;
  }

 private:
  static constexpr size_t kSize = 16;

  // Looked up once: every look-up locks the library's table of algorithms.
  static EVP_MAC* algorithm() {
    static const std::unique_ptr<EVP_MAC, FreeMac> mac(EVP_MAC_fetch(nullptr, "SIPHASH", nullptr));
    CHECK(mac != nullptr);
    return mac.get();
  }

  void add(const void* bytes, size_t size) {
    CHECK(EVP_MAC_update(context_.get(), static_cast<const unsigned char*>(bytes), size) == 1);
  }

  std::unique_ptr<EVP_MAC_CTX, FreeMac> context_;
  std::array<unsigned char, 16> key_{};
};

// What is hashed begins with its kind, so that no value of one kind is one of another.
enum class Kind : uint64_t { kRoot = 1, kBlock = 2, kSalt = 3 };

PrefixHash root(SipHash& hash, uint64_t salt) {
  const std::array<uint64_t, 2> head{raw(Kind::kRoot), salt};
  return hash(head.data(), sizeof(head), nullptr, 0);
}

PrefixHash next(SipHash& hash, PrefixHash before, std::span<const Token> tokens) {
  const std::array<uint64_t, 3> head{raw(Kind::kBlock), before.hi, before.lo};
  return hash(head.data(), sizeof(head), tokens.data(), tokens.size_bytes());
}

}  // namespace

PrefixHash prefix_root(CacheKey key, uint64_t salt) {
  SipHash hash(key);
  return root(hash, salt);
}

PrefixHash prefix_next(CacheKey key, PrefixHash before, std::span<const Token> tokens) {
  SipHash hash(key);
  return next(hash, before, tokens);
}

std::vector<PrefixHash> prefix_chain(CacheKey key, uint64_t salt, std::span<const Token> tokens,
                                     uint32_t block_tokens) {
  CHECK(block_tokens > 0);
  std::vector<PrefixHash> chain;
  chain.reserve(tokens.size() / block_tokens);
  if (tokens.size() < block_tokens) return chain;
  SipHash hash(key);
  PrefixHash at = root(hash, salt);
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    at = next(hash, at, tokens.first(block_tokens));
    chain.push_back(at);
  }
  return chain;
}

// Zero stands for "no salt", so a text that happens to give it takes the next value.
uint64_t cache_salt(CacheKey key, std::span<const char> text) {
  if (text.empty()) return 0;
  SipHash hash(key);
  const uint64_t kind = raw(Kind::kSalt);
  const uint64_t salt = hash(&kind, sizeof(kind), text.data(), text.size()).lo;
  return salt == 0 ? 1 : salt;
}

}  // namespace headrace
