#pragma once

#include "coordinator/client_port.h"
#include "coordinator/cluster_status.h"
#include "protocol/api_words.h"

namespace headrace::coordinator {

// api.capnp <-> the Dispatcher's words. Reading checks what the schema leaves open (no prompt, text
// that is not UTF-8 is left to the tokenizer) and the limits of a request's parts (limits.h),
// before anything is copied; numbers are judged later, against the model. It never throws for what
// a client may send, except where the message itself is malformed.
Result<Prompt> read_prompt(api::Prompt::Reader from);
Result<Submit> read_request(
    api::GenerateRequest::Reader from);  // without client; id zero: mint one
RequestId read_request_id(api::Id::Reader from);
void write(api::Chunk::Builder to, const Chunk& chunk);
void write(api::Answer::Builder to, const Ended& ended);
void write(api::Status::Builder to, const ClusterStatus& status);
void write_models(capnp::List<api::Model>::Builder to, const ClusterStatus& status);

}  // namespace headrace::coordinator
