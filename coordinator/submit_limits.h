#pragma once

#include "coordinator/client_port.h"

namespace headrace::coordinator {

// Everything of a Submit that can be judged without a tokenizer, for a model of `vocab` tokens
// (UINT32_MAX: not known yet). kInvalid names the field, its value and the limit.
Status check_submit_fields(const Submit& submit, uint32_t vocab);
// The part of it that depends on the model.
Status check_submit_ids(const Submit& submit, uint32_t vocab);
Status check_prompt(const Prompt& prompt);

// What a prompt weighs while it waits to become tokens: bytes of text, four per id.
size_t prompt_bytes(const Prompt& prompt);

}  // namespace headrace::coordinator
