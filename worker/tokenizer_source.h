#pragma once

#include <cstdint>

#include "protocol/limits.h"
#include "protocol/model_card.h"
#include "protocol/result.h"
#include "worker/gguf.h"

namespace headrace::worker {

// Limits of a vocabulary, beside those of the file reader.
inline constexpr size_t kTokenBytesMax = 4096;  // one token's text in the byte-level alphabet
inline constexpr size_t kTemplateBytesMax = limits::kStringBytes;  // it has to fit a message

// Makes the tokenizer out of a file's metadata. Merges become pairs of ids: the merged piece has to
// be in the vocabulary too. Unused tokens at the end, beyond the real vocabulary, are left out, so
// that they are neither accepted nor ever sampled. `rows` is the height of the output matrix.
//
// Refused: another kind of tokenizer or pre-tokenizer, and any vocabulary that contradicts itself
// (two ids of one text, more tokens than rows, merges of unknown pieces, special ids out of range).
Result<TokenizerData> read_tokenizer(const GgufFile& file, uint32_t rows);

}  // namespace headrace::worker
