#pragma once

#include "protocol/api_words.h"
#include "protocol/client.h"

// The client's plain structs <-> api.capnp.
namespace headrace::client {

void write(api::Prompt::Builder to, const Prompt& prompt, bool special);
void write(api::GenerateRequest::Builder to, const GenerateRequest& request);

// The end of a stream whose chunks made `so_far`.
Result<Answer> read_end(api::Generation::Reader from, const Answer& so_far);
std::vector<Model> read_models(capnp::List<api::Model>::Reader from);
ClusterStatus read_status(api::Status::Reader from);
Result<std::vector<Token>> read_tokens(api::Tokenized::Reader from);
Result<std::string> read_text(api::Detokenized::Reader from);

}  // namespace headrace::client
