#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/client_port.h"
#include "kernels/device.h"
#include "protocol/link.h"

namespace headrace::cli {

// Options that several commands share. Each struct adds its options to a command and holds what
// was given; readings beyond the syntax are made by its functions.

// Where and how a model is computed.
struct EngineOptions {
  std::string device = "auto";             // see parse_device
  int threads = 0;                         // 0: all that this process may use
  bool pin_threads = false;                // a processor for each
  uint32_t block_tokens = 32;              // KV block: 16, 32 or 64 tokens
  uint32_t kv_blocks = 0;                  // 0: as many as the context of some requests needs
  std::optional<kernels::KvType> kv_type;  // none: what the device has by itself
  bool prefill_library = false;            // see kPrefillLibrary
  std::string state_dir;                   // measured limits are kept here
  double gpu_share = 1;                    // of a GPU's memory, where others have the rest

  // `several`: the device may be a list, "cuda:0,cuda:1".
  void add_to(CLI::App& command, bool several = false);
  // The same options, spelled out for a child process.
  std::vector<std::string> arguments() const;

 private:
  void add_device(CLI::App& command, bool several);
};

// "auto" is the first GPU, or else the fastest CPU path, as "cpu" is; "cpu:portable", "cpu:avx2",
// "cpu:avx512vnni", "cpu:amx" name one; "reference" is the slow, plain one. An error lists what
// there is, or says that this processor lacks it. `kv`: elements of its KV; a GPU has all of
// kernels::kKvTypes, others one alone. `prefill_library`: a GPU's, too.
Result<std::unique_ptr<kernels::Device>> make_device(const std::string& name, int threads,
                                                     std::optional<kernels::KvType> kv = {},
                                                     bool prefill_library = false);
// What is said at the start of a process whose products of long prompts are cuBLASLt's.
constexpr const char* kPrefillLibrary =
    "--prefill-gemm library: a token's KV from a prompt is not bit-equal to that of a decode "
    "step or a replay; 'same tokens every way' does not hold";
// "cuda:N" is a GPU, "cuda" the first one; "auto" is that, too, where there is one.
std::optional<int> gpu_of(const std::string& name);
// The CPU path that a device name stands for; none for others, "reference" or a wrong name.
std::optional<kernels::CpuPath> cpu_path_of(const std::string& name);
// The spelling alone; empty if right, else one line.
std::string check_device_name(const std::string& name);

// The folder for measured limits: the option, else XDG_STATE_HOME/headrace, else
// ~/.local/state/headrace, else a folder of the user below the system's temporary one.
std::string state_folder(const std::string& option);

// What is asked of the model.
struct AskOptions {
  std::optional<std::string> prompt;  // positional; else stdin
  std::string prompt_ids;
  bool chat = false;
  std::string system;
  bool special = false;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::optional<uint64_t> seed;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  double repetition_penalty = 1;
  std::vector<std::string> logit_bias;  // ID=BIAS
  uint32_t logprobs = 0;
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stop;
  bool include_stop = false;
  std::vector<Token> stop_tokens;
  bool ignore_eos = false;
  std::string cache_salt;
  std::string request_id;  // 32 hexadecimal digits; empty: drawn
  bool kv_digest = false;

  void add_to(CLI::App& command);
  Sampling sampling() const;
  // The prompt in its final form. Reads stdin if neither text nor ids were given; an error if that
  // is a terminal, or the options exclude each other.
  Result<coordinator::Prompt> read_prompt(const std::string& text, bool given) const;
  // What single options cannot tell: how many there are, and what was named twice.
  Status check() const;

 private:
  void add_prompt(CLI::App& command);
  void add_sampling(CLI::App& command);
  void add_penalties(CLI::App& command);
  void add_ends(CLI::App& command);
};

// A refusal of the coordinator in the words of a person at the command line: where it begins with
// the name of a request's field, that of the option: "logit_bias names" -> "--logit-bias names".
Status in_option_words(Status refusal);
// Why the coordinator does not take a worker, and where an option decides what differs, which.
Status with_options(Status rejection);

// What running answers get by default when a process is to end, and at most.
inline constexpr int kDrainSeconds = 30;
inline constexpr int kDrainSecondsMax = 24 * 3600;

// What ends a process in order: SIGTERM, SIGINT, and SIGHUP unless it came in ignored (nohup).
std::vector<int> ending_signals();

// All of stdin, at most `bytes_max`.
Result<std::string> read_stdin(size_t bytes_max);

// True for 127.0.0.0/8, ::1 and localhost.
bool loopback(const std::string& host);
// Until the mesh is encrypted, anything else needs --insecure-mesh: an error that says so, or a
// loud line on stderr when it was given.
Status check_exposure(const Endpoint& at, const std::string& what, bool insecure_mesh);

}  // namespace headrace::cli
