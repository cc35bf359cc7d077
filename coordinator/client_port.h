#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/actor.h"
#include "protocol/generation.h"
#include "protocol/ids.h"
#include "protocol/result.h"

namespace headrace::coordinator {

// The words between the Dispatcher and whoever asks: gateway session, in-process CLI, simulator.

struct ChatMessage {
  std::string role;     // "system", "user", "assistant"
  std::string content;  // letters only: control names in it stay letters
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
};

// Seconds as seen by the coordinator.
struct Timing {
  double queue = 0;        // admission to dispatch
  double first_token = 0;  // admission to the first token (TTFT)
  double total = 0;        // admission to the end
};

// Some tokens of the answer; `text` is what became certain with them (whole UTF-8 characters).
struct Chunk {
  uint32_t position = 0;  // of ids[0] in the answer
  std::vector<Token> ids;
  std::string text;
};

// The one terminal record of a request. Nothing follows it.
struct Ended {
  Finish finish = Finish::kNone;
  Status status;     // for kError and kCancelled
  std::string text;  // what was held back, to be appended
  Usage usage;
  Timing timing;
  bool remote_prefill = false;  // the KV came from a prefill worker
  Digest kv;                    // if asked for
};

// Implemented by those who ask. Told on their own strand.
class ClientPort {
 public:
  virtual ~ClientPort() = default;
  virtual void on(Chunk chunk) = 0;
  virtual void on(Ended ended) = 0;
};

using Prompt = std::variant<std::string, std::vector<Token>, std::vector<ChatMessage>>;

// To the Dispatcher: answer this. Every Submit gets exactly one Ended.
struct Submit {
  RequestId request;  // fresh
  Prompt prompt;
  bool special = false;                // text prompt: recognise control names (default: letters)
  std::optional<uint64_t> seed;        // none: drawn at random
  Sampling sampling;                   // its seed is ignored
  std::optional<uint32_t> max_tokens;  // none: to the end of the context
  bool kv_digest = false;
  Duration deadline = 10min;  // for the whole answer
  Ref<ClientPort> client;
};

// To the Dispatcher: the client took chunks up to this position (exclusive); opens credit.
struct Acknowledge {
  RequestId request;
  uint32_t position = 0;
};

// To the Dispatcher: the client is gone or asks to stop. Ended{kCancelled} follows.
struct Abandon {
  RequestId request;
};

}  // namespace headrace::coordinator
