#pragma once

#include "coordinator/client_port.h"
#include "coordinator/cluster_status.h"
#include "protocol/api_words.h"

namespace headrace::coordinator {

// Limits of a request's parts, checked before anything is copied or computed. Numbers are judged
// later, against the model (sampling_limits.h).
inline constexpr uint32_t kStopTextsMax = 16;
inline constexpr uint32_t kStopTextBytesMax = 256;
inline constexpr uint32_t kStopTokenIdsMax = 128;
inline constexpr uint32_t kCacheSaltMax = 256;  // bytes

// api.capnp <-> the Dispatcher's words. Reading checks what the schema leaves open (no prompt, text
// that is not UTF-8 is left to the tokenizer) and never throws for what a client may send, except
// where the message itself is malformed.
Result<Prompt> read_prompt(api::Prompt::Reader from);
Result<Submit> read_request(
    api::GenerateRequest::Reader from);  // without client; id zero: mint one
RequestId read_request_id(api::Id::Reader from);
void write(api::Chunk::Builder to, const Chunk& chunk);
void write(api::Answer::Builder to, const Ended& ended);
void write(api::Status::Builder to, const ClusterStatus& status);
void write_models(capnp::List<api::Model>::Builder to, const ClusterStatus& status);

}  // namespace headrace::coordinator
