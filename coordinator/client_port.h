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
  std::vector<Logprobs> logprobs{};  // of each id, if asked for; else empty
};

// The one terminal record of a request. Nothing follows it.
struct Ended {
  Finish finish = Finish::kNone;
  Status status;     // for kError and kCancelled
  std::string text;  // what was held back, to be appended
  Usage usage;
  Timing timing;
  bool remote_prefill = false;  // the KV came from a prefill worker
  Digest kv;                    // if asked for; zero when a stop text ended it
};

// Implemented by those who ask. Told on their own strand.
class ClientPort {
 public:
  virtual ~ClientPort() = default;
  virtual void on(Chunk chunk) = 0;
  virtual void on(Ended ended) = 0;
};

// One answer to a question, told on the asker's strand.
template <class T>
class ReplyPort {
 public:
  virtual ~ReplyPort() = default;
  virtual void on(T answer) = 0;
};

using Prompt = std::variant<std::string, std::vector<Token>, std::vector<ChatMessage>>;

// To the Dispatcher: answer this. Every Submit gets exactly one Ended.
struct Submit {
  RequestId request;       // not zero; of no request that is known
  bool resumable = false;  // Detach keeps it, and its end, for a Resume
  Prompt prompt;
  bool special = false;                // text prompt: recognise control names (default: letters)
  std::optional<uint64_t> seed;        // none: drawn at random
  Sampling sampling;                   // its seed is ignored
  std::optional<uint32_t> max_tokens;  // none: to the end of the context
  bool kv_digest = false;
  std::vector<std::string> stop;   // the answer's text ends before the first of these
  bool include_stop = false;       // ... or behind it
  std::vector<Token> stop_tokens;  // end the answer like the model's own end
  bool ignore_eos = false;         // the model's own end is a token like others
  std::string cache_salt;          // only requests of equal salt share cached prefixes
  Duration deadline = 10min;       // for the whole answer
  uint64_t owner = 0;              // of `client`, see Detach: one number a connection and call
  bool known = false;              // its client takes what it asks for (standing.h)
  Ref<ClientPort> client;
};

// To the Dispatcher: the client took chunks up to this position (exclusive); opens credit. `owner`
// as in Submit or Resume, 0: whoever has it; of one who was taken over since it is ignored.
struct Acknowledge {
  RequestId request;
  uint32_t position = 0;
  uint64_t owner = 0;
};

// To the Dispatcher: the client asks to stop. Ended{kCancelled} follows. `owner` as in Acknowledge.
struct Abandon {
  RequestId request;
  uint64_t owner = 0;
};

// To the Dispatcher: the client is gone. Like Abandon, but a resumable request goes on and waits
// kResumeWithin for a Resume. `owner` as in Submit or Resume: a request that was taken over by
// another client since is left alone.
struct Detach {
  RequestId request;
  uint64_t owner = 0;
};

// To the Dispatcher: go on with a resumable request towards this client: first everything from
// position `next` on, then what comes. Who had it before is told Ended{kCancelled}. Unknown
// requests, those not resumable and positions past the log get Ended{kNotFound}, all the same.
struct Resume {
  RequestId request;
  uint32_t next = 0;
  uint64_t owner = 0;
  Ref<ClientPort> client;
};

// To the Dispatcher: end this request, whoever made it; an answer that waits to be fetched is
// dropped. The answer: whether there was one of these, not cancelled before.
struct AskCancel {
  RequestId request;
  Ref<ReplyPort<bool>> reply;
};

}  // namespace headrace::coordinator
