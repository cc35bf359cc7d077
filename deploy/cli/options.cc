#include "deploy/cli/options.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>

#include "coordinator/limits.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/output.h"
#include "kernels/cuda_device.h"
#include "protocol/limits.h"

namespace headrace::cli {

namespace {

constexpr int64_t kThreadsMax = 1024;
constexpr double kGpuShareMin = 0.01;
constexpr int64_t kKvBlocksMax = 1 << 24;
constexpr size_t kPromptBytesMax = 16u << 20;
constexpr double kTemperatureMax = 100;
constexpr double kRepetitionMin = 0.01;
constexpr double kRepetitionMax = 10;

}  // namespace

std::optional<kernels::CpuPath> cpu_path_of(const std::string& name) {
  if (name == "auto" && gpu_of(name)) return std::nullopt;
  if (name == "auto" || name == "cpu") return kernels::best_cpu_path();
  if (name.rfind("cpu:", 0) != 0) return std::nullopt;
  return kernels::parse_cpu_path(name.substr(4));
}

std::optional<int> gpu_of(const std::string& name) {
  if (name == "auto") return kernels::cuda_devices(nullptr) > 0 ? std::optional(0) : std::nullopt;
  if (name == "cuda") return 0;
  if (name.rfind("cuda:", 0) != 0) return std::nullopt;
  int ordinal = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + 5, end, ordinal);
  if (error != std::errc() || at != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

std::string check_device_name(const std::string& name) {
  if (name == "reference" || cpu_path_of(name) || gpu_of(name)) return {};
  return "no device '" + name +
         "': there are auto, cpu, cpu:portable, cpu:avx2, cpu:avx512vnni, cpu:amx, cuda:N, "
         "reference";
}

namespace {

// A device that has one type of KV.
Result<std::unique_ptr<kernels::Device>> with_kv(std::unique_ptr<kernels::Device> device,
                                                 std::optional<kernels::KvType> kv) {
  if (!kv || *kv == device->kv_type()) return device;
  return error(Errc::kInvalid, std::string("--kv-type ") + name(*kv) + " is for GPUs: the KV of " +
                                   device->name() + " is " + name(device->kv_type()));
}

}  // namespace

Result<std::unique_ptr<kernels::Device>> make_device(const std::string& name, int threads,
                                                     std::optional<kernels::KvType> kv,
                                                     bool prefill_library) {
  if (const auto gpu = gpu_of(name)) {
    try {
      return kernels::make_cuda_device({.ordinal = *gpu,
                                        .kv_type = kv.value_or(kernels::CudaOptions().kv_type),
                                        .library = prefill_library});
    } catch (const kernels::DeviceError& why) {
      // Where there is CUDA it begins with the GPU's name.
      const std::string text = why.what();
      return error(Errc::kInvalid, (prefill_library ? "--prefill-gemm library, " : "") +
                                       std::string("--device ") +
                                       (text.starts_with("cuda:") ? "" : name + ": ") + text);
    }
  }
  if (prefill_library)
    return error(Errc::kInvalid,
                 "--prefill-gemm library is for GPUs, and device " + name + " is none");
  if (name == "reference") return with_kv(kernels::make_reference_device(threads), kv);
  const auto path = cpu_path_of(name);
  if (!path) return error(Errc::kInvalid, check_device_name(name));
  if (!kernels::supported(*path)) {
    return error(Errc::kInvalid,
                 "this processor cannot run " + name + "; 'headrace doctor' says what it can");
  }
  return with_kv(kernels::make_cpu_device(*path, threads), kv);
}

void EngineOptions::add_device(CLI::App& command, bool several) {
  const auto known = CLI::Validator(
      [several](std::string& text) {
        std::string wrong;
        for (size_t from = 0; wrong.empty() && from != text.npos;) {
          const size_t comma = several ? text.find(',', from) : text.npos;
          wrong = check_device_name(text.substr(from, comma - from));
          from = comma == text.npos ? comma : comma + 1;
        }
        return wrong;
      },
      "", "device");
  const std::string names = "auto, cpu, cpu:portable, cpu:avx2, cpu:avx512vnni, cpu:amx, cuda:N";
  command
      .add_option("--device", device,
                  names + (several ? ", a list of GPUs (cuda:0,cuda:1: one entry a worker)" : "") +
                      " or reference")
      ->check(known)
      ->capture_default_str()
      ->group("Engine");
  command
      .add_option("--threads", threads,
                  "Threads that compute, or that load the weights of a GPU; 0: all there are")
      ->check(whole(0, kThreadsMax))
      ->capture_default_str()
      ->group("Engine");
  // Processes that one command starts would all take the same processors.
  if (!several)
    command
        .add_flag("--pin-threads", pin_threads,
                  "Keep each computing thread on one of the processors that this process may use")
        ->group("Engine");
}

void EngineOptions::add_to(CLI::App& command, bool several) {
  add_device(command, several);
  command.add_option("--kv-block-tokens", block_tokens, "Tokens of a KV block: 16, 32 or 64")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool right = text == "16" || text == "32" || text == "64";
            return right ? std::string() : "takes 16, 32 or 64, not '" + text + "'";
          },
          "", "block"))
      ->capture_default_str()
      ->group("Engine");
  command.add_option("--kv-blocks", kv_blocks, "KV blocks to reserve; 0: for some full contexts")
      ->check(whole(0, kKvBlocksMax))
      ->capture_default_str()
      ->group("Engine");
  command
      .add_option_function<std::string>(
          "--kv-type", [this](const std::string& text) { kv_type = kernels::parse_kv_type(text); },
          "Of a GPU's KV: f16, bf16, fp8 or int8; default f16. A CPU has f16")
      ->check(CLI::Validator(
          [](std::string& text) {
            return kernels::parse_kv_type(text)
                       ? std::string()
                       : "takes f16, bf16, fp8 or int8, not '" + text.substr(0, 40) + "'";
          },
          "", "type"))
      ->group("Engine");
  command
      .add_option_function<std::string>(
          "--prefill-gemm",
          [this](const std::string& text) { prefill_library = text == "library"; },
          "Products of long prompts: exact, or library (cuBLASLt), which gives up that a "
          "token's KV is the same however it came about; default exact")
      ->check(CLI::IsMember({"exact", "library"}))
      ->group("Engine");
  if (!several)
    command
        .add_option("--gpu-share", gpu_share,
                    "Part of a GPU's memory that this process may take, if others have the rest")
        ->check(number(kGpuShareMin, 1))
        ->capture_default_str()
        ->group("Engine");
  command.add_option("--state-dir", state_dir, "Folder for what was measured of this machine")
      ->group("Engine");
}

std::vector<std::string> EngineOptions::arguments() const {
  std::vector<std::string> words{"--device",          device,
                                 "--threads",         std::to_string(threads),
                                 "--kv-block-tokens", std::to_string(block_tokens),
                                 "--kv-blocks",       std::to_string(kv_blocks),
                                 "--state-dir",       state_folder(state_dir)};
  if (kv_type) words.insert(words.end(), {"--kv-type", name(*kv_type)});
  if (prefill_library) words.insert(words.end(), {"--prefill-gemm", "library"});
  return words;
}

std::string state_folder(const std::string& option) {
  if (!option.empty()) return option;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/') {
    return std::string(state) + "/headrace";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    return std::string(home) + "/.local/state/headrace";
  }
  const char* temporary = std::getenv("TMPDIR");
  return std::string(temporary != nullptr ? temporary : "/tmp") + "/headrace-" +
         std::to_string(getuid());
}

void AskOptions::add_to(CLI::App& command) {
  add_prompt(command);
  add_sampling(command);
  add_penalties(command);
  add_ends(command);
}

void AskOptions::add_prompt(CLI::App& command) {
  command.add_option("--prompt-ids", prompt_ids, "The prompt as token ids: 1,2,3")
      ->check(token_ids())
      ->group("Prompt");
  command.add_flag("--chat", chat, "The prompt is a message to the model's chat template")
      ->group("Prompt");
  command.add_option("--system", system, "System message of the chat (implies --chat)")
      ->group("Prompt");
  command
      .add_flag("--special", special, "Recognise control names in the prompt (default: letters)")
      ->group("Prompt");
  command
      .add_option("--cache-salt", cache_salt,
                  "Only requests of equal salt share cached prefixes; default: none")
      ->check(text_of(0, coordinator::kCacheSaltBytesMax))
      ->group("Prompt");
  command
      .add_option("--request-id", request_id,
                  "32 hexadecimal digits that name the request: once its client is lost it goes on "
                  "for a while, and 'run --connect A --resume ID' takes it up; default: drawn, and "
                  "it ends with its client")
      ->check(headrace::cli::request_id())
      ->group("Prompt");
}

void AskOptions::add_sampling(CLI::App& command) {
  command.add_option("--temperature", temperature, "0: always the likeliest token")
      ->check(number(0, kTemperatureMax))
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--top-k", top_k, "Of the k likeliest; 0 or less: of all")
      ->check(whole(INT32_MIN, INT32_MAX))
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--top-p", top_p, "Of the likeliest that sum to p")
      ->check(above(0, 1))
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--min-p", min_p, "Only of those at least p times as likely as the best")
      ->check(number(0, 1))
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--seed", seed, "The same seed gives the same answer; default: random")
      ->check(whole(0, INT64_MAX))
      ->group("Sampling");
  command.add_option("--logprobs", logprobs, "With --json: so many alternatives of each token")
      ->check(whole(0, limits::kLogprobs))
      ->capture_default_str()
      ->group("Sampling");
  command.add_flag("--kv-digest", kv_digest, "Also report the digest of the answer's KV cache")
      ->group("Sampling");
}

void AskOptions::add_penalties(CLI::App& command) {
  command
      .add_option("--presence-penalty", presence_penalty,
                  "-2 to 2, taken from the logits of tokens that were generated before")
      ->check(number(-2, 2))
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--frequency-penalty", frequency_penalty, "The same, times how often they were")
      ->check(number(-2, 2))
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--repetition-penalty", repetition_penalty,
                  "Divides the logits of tokens in prompt and answer; 1: none")
      ->check(number(kRepetitionMin, kRepetitionMax))
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--logit-bias", logit_bias,
                  "ID=BIAS, -100 to 100, added to the logit of a token; may be repeated")
      ->check(bias())
      ->allow_extra_args(false)
      ->group("Sampling");
}

void AskOptions::add_ends(CLI::App& command) {
  command.add_option("--max-tokens", max_tokens, "End after so many tokens; default: the context")
      ->check(whole(1, INT32_MAX))
      ->group("End");
  command.add_option("--stop", stop, "End before this text; may be repeated (16, 256 bytes each)")
      ->check(text_of(1, coordinator::kStopBytesMax))
      ->allow_extra_args(false)
      ->group("End");
  command.add_flag("--include-stop", include_stop, "... behind it")->group("End");
  command
      .add_option("--stop-token", stop_tokens,
                  "End at this token like at the model's own end; may be repeated")
      ->check(whole(0, INT32_MAX))
      ->allow_extra_args(false)
      ->group("End");
  command.add_flag("--ignore-eos", ignore_eos, "The model's own end is a token like others")
      ->group("End");
}

Sampling AskOptions::sampling() const {
  Sampling s;
  s.temperature = static_cast<float>(temperature);
  s.top_k = static_cast<int32_t>(top_k);
  s.top_p = static_cast<float>(top_p);
  s.min_p = static_cast<float>(min_p);
  s.presence_penalty = static_cast<float>(presence_penalty);
  s.frequency_penalty = static_cast<float>(frequency_penalty);
  s.repetition_penalty = static_cast<float>(repetition_penalty);
  for (const std::string& one : logit_bias) s.bias.push_back(*parse_bias(one));
  s.logprobs = logprobs;
  return s;
}

Status AskOptions::check() const {
  const auto many = [](const std::string& option, size_t has, size_t limit) {
    return error(Errc::kInvalid, option + " is given " + std::to_string(has) +
                                     " times, the limit is " + std::to_string(limit));
  };
  if (stop.size() > coordinator::kStopsMax)
    return many("--stop", stop.size(), coordinator::kStopsMax);
  if (stop_tokens.size() > coordinator::kStopTokensMax)
    return many("--stop-token", stop_tokens.size(), coordinator::kStopTokensMax);
  if (logit_bias.size() > limits::kLogitBias)
    return many("--logit-bias", logit_bias.size(), limits::kLogitBias);
  std::set<Token> seen;
  for (const std::string& one : logit_bias) {
    const Token id = parse_bias(one)->id;
    if (!seen.insert(id).second)
      return error(Errc::kInvalid, "--logit-bias names token " + std::to_string(id) + " twice");
  }
  return {};
}

Status in_option_words(Status refusal) {
  constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
      {"cache_salt", "--cache-salt"},
      {"frequency_penalty", "--frequency-penalty"},
      {"logit_bias", "--logit-bias"},
      {"logprobs", "--logprobs"},
      {"max_tokens", "--max-tokens"},
      {"min_p", "--min-p"},
      {"presence_penalty", "--presence-penalty"},
      {"repetition_penalty", "--repetition-penalty"},
      {"stop", "--stop"},
      {"stop_tokens", "--stop-token"},
      {"temperature", "--temperature"},
      {"top_p", "--top-p"}};
  const std::string_view text = refusal.message;
  const std::string_view first = text.substr(0, text.find_first_of(" :["));
  for (const auto& [field, option] : kOptions) {
    if (refusal.code != Errc::kInvalid || first != field) continue;
    refusal.message = std::string(option) + std::string(text.substr(field.size()));
    break;
  }
  return refusal;
}

Status with_options(Status rejection) {
  constexpr std::pair<std::string_view, std::string_view> kDecided[] = {
      {"worker has KV blocks of tokens: ", "--kv-block-tokens decides it"},
      {"worker has KV layout ", "--kv-type and --device decide it"},
      {"worker has arithmetic ", "--device and --prefill-gemm decide it"}};
  for (const auto& [begins, option] : kDecided)
    if (rejection.message.starts_with(begins)) rejection.message += "; " + std::string(option);
  return rejection;
}

Result<coordinator::Prompt> AskOptions::read_prompt(const std::string& text, bool given) const {
  const bool chatting = chat || !system.empty();
  if (!prompt_ids.empty()) {
    if (given) return error(Errc::kInvalid, "give a prompt or --prompt-ids, not both");
    if (chatting) return error(Errc::kInvalid, "--prompt-ids cannot be a chat message");
    return coordinator::Prompt(*parse_ids(prompt_ids));
  }
  std::string words = text;
  if (!given) {
    if (isatty(STDIN_FILENO) != 0) {
      return error(Errc::kInvalid, "no prompt: give one as the last argument or on stdin");
    }
    auto typed = read_stdin(kPromptBytesMax);
    if (!typed) return typed.error();
    words = std::move(*typed);
  }
  if (!chatting) return coordinator::Prompt(std::move(words));
  if (special) return error(Errc::kInvalid, "--special is for plain prompts, not for --chat");
  std::vector<coordinator::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", std::move(words)});
  return coordinator::Prompt(std::move(messages));
}

Result<std::string> read_stdin(size_t bytes_max) {
  std::string text;
  char piece[65536];
  while (true) {
    const ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error(Errc::kInvalid, "stdin cannot be read");
    if (n == 0) return text;
    if (text.size() + static_cast<size_t>(n) > bytes_max) {
      return error(Errc::kInvalid, "stdin holds more than the " +
                                       human_bytes(static_cast<double>(bytes_max)) +
                                       " a prompt may have");
    }
    text.append(piece, static_cast<size_t>(n));
  }
}

std::vector<int> ending_signals() {
  std::vector<int> signals{SIGTERM, SIGINT};
  struct sigaction before {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    signals.push_back(SIGHUP);
  return signals;
}

bool loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Status check_exposure(const Endpoint& at, const std::string& what, bool insecure_mesh) {
  if (loopback(at.host)) return {};
  const std::string where = what + " on " + to_string(at);
  if (!insecure_mesh) {
    return error(Errc::kInvalid, where +
                                     " would be open to the network without encryption; use a "
                                     "loopback address, or allow it with --insecure-mesh");
  }
  say("WARNING: " + where + " is open to the network, WITHOUT encryption or authentication");
  return {};
}

}  // namespace headrace::cli
