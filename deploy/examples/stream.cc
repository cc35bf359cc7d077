// Streams one answer through the C++ client library:
//
//   stream HOST:PORT PROMPT [--chat] [--max-tokens N] [--cancel-after N]
//
// The request is resumable: when the connection is lost in the middle, the library connects anew
// and goes on where it was; the text on stdout is the same as without the loss. Exit status: 0 the
// answer is complete, 3 it was cancelled as asked for, 1 an error, 2 wrong usage.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "protocol/client.h"

namespace {

struct Options {
  std::string address;
  headrace::client::GenerateRequest request;
  uint32_t cancel_after = 0;  // tokens; 0: never
};

// False if the words make no sense.
bool read(int argc, char** argv, Options& options) {
  std::string prompt;
  bool chat = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool number = word == "--max-tokens" || word == "--cancel-after";
    if (word == "--chat") {
      chat = true;
    } else if (number && i + 1 < argc) {
      const auto value = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
      if (word == "--max-tokens")
        options.request.max_tokens = value;
      else
        options.cancel_after = value;
    } else if (options.address.empty()) {
      options.address = word;
    } else if (prompt.empty()) {
      prompt = word;
    } else {
      return false;
    }
  }
  if (chat)
    options.request.prompt = std::vector<headrace::client::ChatMessage>{{"user", prompt}};
  else
    options.request.prompt = prompt;
  return !prompt.empty();
}

int fail(const headrace::Status& status) {
  std::fprintf(stderr, "stream: %s\n", status.message.c_str());
  return 1;
}

int stream(Options options) {
  const auto address = headrace::parse_endpoint(options.address);
  if (!address) return fail(address.error());
  auto client = headrace::client::Client::connect(*address);
  if (!client) return fail(client.error());
  // Other ports take a connection too and then say nothing of use.
  if (const auto info = (*client)->hello("stream"); !info) {
    std::fprintf(stderr,
                 "stream: no answer of a coordinator at %s: is that its port for clients, not the "
                 "one of mesh or metrics?\n",
                 options.address.c_str());
    return 1;
  }

  options.request.resumable = true;
  uint32_t tokens = 0;
  std::atomic<headrace::client::Generation*> running = nullptr;
  const auto generation =
      (*client)->generate(options.request, [&](const headrace::client::Chunk& chunk) {
        std::fwrite(chunk.text.data(), 1, chunk.text.size(), stdout);
        std::fflush(stdout);
        tokens += static_cast<uint32_t>(chunk.ids.size());
        auto* const self = running.load();
        if (options.cancel_after > 0 && tokens >= options.cancel_after && self != nullptr)
          self->cancel();
      });
  running = generation.get();
  const auto answer = generation->wait();
  if (!answer && answer.error().code == headrace::Errc::kCancelled) {
    std::fprintf(stderr, "stream: cancelled after %u tokens: %s\n", tokens,
                 answer.error().message.c_str());
    return 3;
  }
  if (!answer) return fail(answer.error());
  std::printf("%s\n", answer->tail.c_str());  // what was held back
  std::fprintf(stderr, "stream: %u tokens, %u of the prompt's %u from the cache, finish %s\n",
               answer->completion_tokens, answer->cached_tokens, answer->prompt_tokens,
               headrace::name(answer->finish));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: stream HOST:PORT PROMPT [--chat] [--max-tokens N] [--cancel-after N]\n");
    return 2;
  }
  return stream(std::move(options));
}
