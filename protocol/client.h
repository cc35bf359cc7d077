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
};

struct ChatMessage {
  std::string role;
  std::string content;
};
using Prompt = std::variant<std::string, std::vector<Token>, std::vector<ChatMessage>>;

struct GenerateRequest {
  Prompt prompt;
  bool special = false;          // text: recognise control names (default: letters)
  Sampling sampling = {};             // its seed is ignored
  std::optional<uint64_t> seed = {};  // none: drawn by the coordinator
  std::optional<uint32_t> max_tokens = {};
  std::optional<Duration> deadline = {};  // of the whole answer; none: the coordinator's
  bool kv_digest = false;
};

struct Chunk {
  uint32_t position = 0;
  std::vector<Token> ids;
  std::string text;
};

struct Answer {
  Finish finish = Finish::kNone;
  std::string text;        // all of it
  std::vector<Token> ids;  // all of it
  std::string tail;        // the part of text that came in no chunk
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
};

// A running generate call. Destroying it cancels.
class Generation {
 public:
  struct State;
  explicit Generation(std::shared_ptr<State> state);
  ~Generation();
  Generation(const Generation&) = delete;

  // Blocks until the one end. An error of the coordinator, kDisconnected when it is gone,
  // kCancelled after cancel(). Once.
  Result<Answer> wait();
  // From any thread, any number of times, also while another waits.
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

// One connection, with a thread of its own. Calls may come from any thread but that one (not from
// inside of `on_chunk`). No call waits longer than its deadline; a lost coordinator ends all of
// them at once with kDisconnected. There is no reconnecting: make another one.
class Client {
 public:
  // Errors, one line that names the address: kUnavailable (refused, no such host), kDeadline.
  static Result<std::unique_ptr<Client>> connect(const Endpoint& to, Duration deadline = 5s);
  ~Client();
  Client(const Client&) = delete;

  Result<ServerInfo> hello(const std::string& name, Duration deadline = 5s);
  Result<std::vector<Model>> models(Duration deadline = 5s);
  Result<ClusterStatus> status(Duration deadline = 5s);
  Result<std::vector<Token>> tokenize(const Prompt& prompt, bool special, Duration deadline = 30s);
  Result<std::string> detokenize(const std::vector<Token>& ids, Duration deadline = 30s);

  // Starts. `on_chunk` is called on the client's thread, in order; while it blocks, no more than
  // the credit of 64 tokens comes. Without an answer for `request.deadline` (10 minutes if unset)
  // and a margin it ends with kDeadline.
  std::unique_ptr<Generation> generate(GenerateRequest request,
                                       std::function<void(const Chunk&)> on_chunk);

 private:
  class Loop;
  explicit Client(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace headrace::client
