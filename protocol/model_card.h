#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "protocol/ids.h"
#include "protocol/time_model.h"

namespace headrace {

// What a worker announces of its model when it registers. Only workers of equal cards are paired:
// equal cards mean equal weights, equal arithmetic and equal KV bytes.
struct ModelCard {
  std::string name;          // general.name of the file, else its stem
  std::string architecture;  // "llama"
  Digest weights;            // XXH3-128 of the model file
  Digest tokenizer;          // XXH3-128 of the encoded TokenizerData
  uint32_t layers = 0;
  uint32_t dim = 0;
  uint32_t ffn = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocab = 0;         // rows of the output matrix
  uint32_t context = 0;       // tokens, prompt and answer together
  uint32_t block_tokens = 0;  // 16, 32 or 64
  uint64_t block_bytes = 0;   // all layers of one block
  std::string kv_layout;      // e.g. "f16 block[layer][head][K d,t|V t,d]"
  std::string numerics;       // arithmetic family, e.g. "cpu-int8/32 slice256", "reference-f32"
  ModelCost cost;
  bool operator==(const ModelCard&) const = default;
};

// GGUF's token types.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUser = 4,
  kUnused = 5,
  kByte = 6
};

// All that turns text into ids and back: fetched from a worker once by digest.
struct TokenizerData {
  std::string model;                            // "gpt2": byte-level BPE
  std::string pre;                              // pre-tokenizer: "smollm", "gpt-2"
  std::vector<std::string> tokens;              // by id, in the byte-level alphabet
  std::vector<TokenKind> kinds;                 // same length
  std::vector<std::pair<Token, Token>> merges;  // by rank: ids of the left and right piece
  Token bos = -1;                               // -1: none
  Token eos = -1;
  std::vector<Token> end_tokens;  // any of these ends an answer; eos is among them
  bool add_bos = false;           // raw text gets a leading bos
  std::string chat_template;      // Jinja; empty: none
  bool operator==(const TokenizerData&) const = default;
};

}  // namespace headrace
