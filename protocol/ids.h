#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace headrace {

// Ids are distinct types: one cannot be passed where another is meant. Each is a value.

// A worker as the coordinator numbers it; never used twice in one coordinator life.
enum class WorkerId : uint64_t {};
// One life of a coordinator; a receiver refuses anything with a lower term.
enum class Term : uint64_t {};
// One try at a request: +1 at each dispatch. Fences everything of an older try.
enum class Attempt : uint32_t {};
// Index of a KV block in one worker's pool.
enum class BlockId : uint32_t {};
// +1 each time a block is freed, so that a late write or free is recognisable.
enum class Generation : uint32_t {};

// 128 random bits; Tag keeps the kinds apart.
template <class Tag>
struct Id128 {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const Id128&) const = default;
  explicit operator bool() const { return hi != 0 || lo != 0; }
};

using RequestId = Id128<struct RequestTag>;  // idempotency key of a client's request
using TransferId =
    Id128<struct TransferTag>;  // one hand-off; minted by the coordinator per attempt
using Incarnation = Id128<struct IncarnationTag>;  // one worker process; minted by the worker
using Digest = Id128<struct DigestTag>;            // XXH3-128 of some bytes
using HandoffKey = Id128<struct HandoffKeyTag>;    // one-time key that admits one sender
using CacheKey = Id128<struct CacheKeyTag>;        // keys the hashes of prefix blocks

// Index into the vocabulary; negative is never valid.
using Token = int32_t;

// A block together with the generation it had when it was handed out.
struct BlockRef {
  BlockId block{};
  Generation generation{};
  bool operator==(const BlockRef&) const = default;
};

template <class E>
requires std::is_enum_v<E>
constexpr auto raw(E e) { return static_cast<std::underlying_type_t<E>>(e); }

}  // namespace headrace

template <class Tag>
struct std::hash<headrace::Id128<Tag>> {
  size_t operator()(const headrace::Id128<Tag>& id) const noexcept {
    return static_cast<size_t>(id.lo ^ (id.hi * 0x9E3779B97F4A7C15ull));
  }
};
