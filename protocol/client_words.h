#pragma once

#include "protocol/api_words.h"
#include "protocol/client.h"

// The client's plain structs <-> api.capnp.
namespace headrace::client {

// What its variable parts take, roughly: cheap, and before a message is built.
uint64_t payload_bytes(const Prompt& prompt);
uint64_t payload_bytes(const GenerateRequest& request);
// Ok, or kInvalid with both numbers: a coordinator would close the connection on it.
Status check_bytes(uint64_t bytes);
// The same for a message that was built.
template <class Request>
Status check_size(const Request& request) {
  constexpr uint64_t kEnvelope = 1024;
  return check_bytes(request.asReader().totalSize().wordCount * sizeof(capnp::word) + kEnvelope);
}

void write(api::Prompt::Builder to, const Prompt& prompt, bool special);
void write(api::GenerateRequest::Builder to, const GenerateRequest& request);

Chunk read_chunk(api::Chunk::Reader from);
// The end of a stream whose chunks made `so_far`.
Result<Answer> read_end(api::Generation::Reader from, const Answer& so_far);
std::vector<Model> read_models(capnp::List<api::Model>::Reader from);
ClusterStatus read_status(api::Status::Reader from);
Result<std::vector<Token>> read_tokens(api::Tokenized::Reader from);
Result<std::string> read_text(api::Detokenized::Reader from);

}  // namespace headrace::client
