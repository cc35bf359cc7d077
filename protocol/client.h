#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/generation.h"
#include "protocol/ids.h"
#include "protocol/link.h"
#include "protocol/messages.h"
#include "protocol/result.h"
#include "protocol/strand.h"

// The C++ client of a Headrace coordinator: api.capnp behind plain structs and blocking calls.
namespace headrace::client {

struct ServerInfo {
  std::string version;
  uint32_t protocol = 0;
};

struct Model {
  std::string name;
  std::string architecture;
  Digest digest;
  uint32_t context = 0;
  uint32_t vocabulary = 0;
  uint32_t block_tokens = 0;
  std::string numerics;
  bool chat = false;
  uint32_t layers = 0;
  uint64_t weight_bytes = 0;
  std::string kv_layout;  // its first word is the type of the elements
  uint64_t block_bytes = 0;
};

struct ChatMessage {
  std::string role;
  std::string content;
};
using Prompt = std::variant<std::string, std::vector<Token>, std::vector<ChatMessage>>;

struct GenerateRequest {
  Prompt prompt;
  bool special = false;               // text: recognise control names (default: letters)
  Sampling sampling = {};             // its seed is ignored
  std::optional<uint64_t> seed = {};  // none: drawn by the coordinator
  std::optional<uint32_t> max_tokens = {};
  std::optional<Duration> deadline = {};  // of the whole answer; none: the coordinator's
  bool kv_digest = false;
  RequestId request_id{};  // zero: drawn here if resumable, else by the coordinator
  // A lost connection is no end: the library attaches again (below) and the coordinator goes on.
  bool resumable = false;
  std::vector<std::string> stop{};  // the answer ends before the first of these
  bool include_stop = false;        // ... or behind it
  std::vector<Token> stop_tokens{};
  bool ignore_eos = false;
  std::string cache_salt{};  // only requests of equal salt share cached prefixes
};

struct Chunk {
  uint32_t position = 0;  // of ids[0] in the answer
  std::vector<Token> ids;
  std::string text;
  std::vector<Logprobs> logprobs{};  // of each id, if asked for
};

struct Answer {
  Finish finish = Finish::kNone;
  std::string text;        // all of it
  std::vector<Token> ids;  // all of it
  std::string tail;        // the part of text that came in no chunk
  std::vector<Logprobs> logprobs{};
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  double queue = 0;  // seconds, as the coordinator saw them
  double first_token = 0;
  double total = 0;
  bool remote_prefill = false;
  Digest kv;
};

struct Worker {
  uint64_t id = 0;
  std::string name;
  std::string role;
  std::string state;
  uint64_t pid = 0;
  std::string device;
  Endpoint kv;
  Endpoint metrics;
  BlockCounts blocks;
  uint32_t in_flight = 0;
  uint32_t running = 0;
  uint64_t steps = 0;
  Saturation prefill{}, decode{};  // of its last seconds
};

struct ClusterStatus {
  bool ready = false;
  std::string not_ready;
  std::vector<Model> models;
  std::vector<Worker> workers;
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint32_t draining = 0;
  std::vector<std::pair<std::string, uint64_t>> totals;  // by name, as in api.capnp
  Endpoint metrics{};                                    // of the coordinator; port 0: none
  bool leaving = false;                                  // it shuts down: no new requests
};

class Loop;

// A running answer. Destroying it cancels.
class Generation {
 public:
  struct State;
  explicit Generation(std::shared_ptr<State> state);
  ~Generation();
  Generation(const Generation&) = delete;

  // Of the request, for Client::resume and Client::cancel; zero if the coordinator drew it.
  RequestId request_id() const;
  // Blocks until the one end. An error of the coordinator, kDisconnected when it is gone,
  // kCancelled after cancel() and when another client took a resumable answer over. Once.
  Result<Answer> wait();
  // From any thread, any number of times, also while another waits.
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

// One connection, with a thread of its own. Calls may come from any thread but that one (not from
// inside of `on_chunk`). No call waits longer than its deadline; a lost coordinator ends them at
// once with kDisconnected, except resumable answers: for those the library connects anew (other
// calls then use that connection too) and goes on at the next position, so that each position is
// delivered once and in order. It tries for kResumeWithin from the loss, then kDisconnected.
class Client {
 public:
  static constexpr Duration kResumeWithin = 30s;
  // More is refused here, by name, before anything is sent: a coordinator would close on it.
  static constexpr uint64_t kRequestBytesMax = 1 << 20;

  // Errors, one line that names the address and why: kUnavailable (refused, no such host),
  // kDeadline.
  static Result<std::unique_ptr<Client>> connect(const Endpoint& to, Duration deadline = 5s);
  // Answers that run are given up; resumable ones stay at the coordinator, for a resume().
  ~Client();
  Client(const Client&) = delete;

  Result<ServerInfo> hello(const std::string& name, Duration deadline = 5s);
  Result<std::vector<Model>> models(Duration deadline = 5s);
  Result<ClusterStatus> status(Duration deadline = 5s);
  Result<std::vector<Token>> tokenize(const Prompt& prompt, bool special, Duration deadline = 30s);
  Result<std::string> detokenize(const std::vector<Token>& ids, Duration deadline = 30s);
  // Ends a request by its id, whoever made it. The answer: whether it was running.
  Result<bool> cancel(const RequestId& request, Duration deadline = 5s);

  // Starts. `on_chunk` is called on the client's thread, in order; while it blocks, no more than
  // the credit of 64 tokens comes. Without an answer for `request.deadline` (10 minutes if unset)
  // and a margin it ends with kDeadline.
  std::unique_ptr<Generation> generate(GenerateRequest request,
                                       std::function<void(const Chunk&)> on_chunk);
  // Goes on with a resumable request, begun anywhere, from position `next`; its Answer holds what
  // came from there on. kNotFound: unknown, not resumable, over for too long, or not that far.
  std::unique_ptr<Generation> resume(const RequestId& request, uint32_t next,
                                     std::function<void(const Chunk&)> on_chunk);

 private:
  explicit Client(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace headrace::client
