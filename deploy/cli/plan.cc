#include <cstdio>
#include <memory>

#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/output.h"
#include "deploy/cli/plan_report.h"
#include "kernels/device.h"
#include "worker/options.h"

namespace headrace::cli {

namespace {

constexpr double kRateMin = 0.001;  // of rates and sizes that are given
constexpr double kGigaMax = 1e6;    // of GB, GB/s and Gb/s
constexpr double kTflopsMax = 1e6;
constexpr double kGapMax = 1000;  // us
constexpr int32_t kChunkMin = 64;
constexpr int32_t kChunkMax = 8192;
constexpr size_t kListMax = 16;  // links, remedies

struct PlanCommand {
  std::string model, shape, gpu;
  std::optional<double> read_gbps, tflops, memory_gb;
  double reserve_gb = 2;
  double share = 80;  // %
  double gap_us = 1.3;
  std::string weights, output, kv = "f16";
  PlanCase base;
  std::vector<double> links;
  std::vector<std::string> remedies;
  bool json = false;

  void add_model(CLI::App& command);
  void add_machine(CLI::App& command);
  void add_case(CLI::App& command);
};

// A word of a list; the message names the list.
template <class Parse>
CLI::Validator word(const char* list, Parse parse) {
  return CLI::Validator(
      [=](std::string& text) {
        return parse(text) ? std::string()
                           : std::string("takes ") + list + ", not '" + text.substr(0, 40) + "'";
      },
      "", "word");
}

void PlanCommand::add_model(CLI::App& command) {
  command.add_option("MODEL", model, "GGUF file; only its head is read");
  command
      .add_option("--shape", shape, "Instead of a file: 1b, 8b, 70b (Llama 3.2 1B, 3.1 8B and 70B)")
      ->check(word("1b, 8b or 70b", plan_shape));
}

void PlanCommand::add_machine(CLI::App& command) {
  command.add_option("--gpu", gpu, "a100, h100, h200 or b200")
      ->check(word("a100, h100, h200 or b200", plan_gpu))
      ->required();
  command.add_option("--read-gbps", read_gbps, "Bytes that it reads, in 10^9 a second; else known")
      ->check(number(kRateMin, kGigaMax));
  command.add_option("--tflops", tflops, "bf16 operations, in 10^12 a second; else known")
      ->check(number(kRateMin, kTflopsMax));
  command.add_option("--memory-gb", memory_gb, "Memory, in 10^9 bytes; else known")
      ->check(number(kRateMin, kGigaMax));
  command.add_option("--reserve-gb", reserve_gb, "Memory left to driver, graphs and libraries")
      ->check(number(0, kGigaMax))
      ->capture_default_str();
  command
      .add_option("--share", share, "Predicted: % of its limit that an operation or a link reaches")
      ->check(number(1, 100))
      ->capture_default_str();
  command.add_option("--gap-us", gap_us, "Predicted: microseconds between two launches")
      ->check(number(0, kGapMax))
      ->capture_default_str();
}

void PlanCommand::add_case(CLI::App& command) {
  const auto tokens = [&](const char* option, int32_t& to, const char* about) {
    command.add_option(option, to, about)->check(whole(1, kPlanTokensMax))->capture_default_str();
  };
  command
      .add_option("--weights", weights,
                  "Of the tables of one format: w4, w8, bf16, file (default: file, else bf16)")
      ->check(word("w4, w8, bf16 or file", parse_plan_weights));
  command.add_option("--output-weights", output, "Of the output matrix, if other than the rest")
      ->check(word("w4, w8, bf16 or file", parse_plan_weights));
  command.add_option("--kv-type", kv, "Of the tables of one format: f16, bf16, fp8, int8")
      ->check(word("f16, bf16, fp8 or int8", kernels::parse_kv_type))
      ->capture_default_str();
  command.add_option("--group", base.format.group, "Weights to a scale: 32 (as they run), 64, 128")
      ->check(word("32, 64 or 128",
                   [](const std::string& t) { return t == "32" || t == "64" || t == "128"; }))
      ->capture_default_str();
  command.add_option("--batch", base.batch, "Answers at a time, where one figure is asked for")
      ->check(whole(1, kPlanBatchMax))
      ->capture_default_str();
  tokens("--context", base.context, "Tokens of each of them, there");
  tokens("--prompt", base.prompt, "Tokens of a prompt");
  tokens("--answer", base.answer, "Tokens of an answer");
  command.add_option("--chunk", base.chunk, "Tokens of a prompt that a step takes")
      ->check(whole(kChunkMin, kChunkMax))
      ->capture_default_str();
  command
      .add_option("--link-gbps", links,
                  "Links, in 10^9 bits a second; default: NVLink, 400, 100, 10")
      ->check(number(kRateMin, kGigaMax))
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--what-if", remedies, std::string("What it would buy: ") + kPlanRemedies)
      ->check(word(kPlanRemedies,
                   [](const std::string& text) { return plan_what_if(PlanCase(), text); }))
      ->delimiter(',')
      ->allow_extra_args(false);
}

// The model that was named.
Result<PlanModel> model_of(const PlanCommand& command) {
  return command.model.empty() ? Result<PlanModel>(*plan_shape(command.shape))
                               : plan_model_of(command.model);
}

PlanMachine machine_of(const PlanCommand& command) {
  const auto scaled = [](std::optional<double> value, double unit) {
    return value ? std::optional<double>(*value * unit) : std::nullopt;
  };
  PlanMachine machine = plan_machine(*plan_gpu(command.gpu), scaled(command.read_gbps, 1e9),
                                     scaled(command.tflops, 1e12));
  if (command.memory_gb) machine.memory = *command.memory_gb * 1e9;
  machine.reserve = command.reserve_gb * 1e9;
  machine.share = command.share / 100;
  machine.gap = command.gap_us * 1e-6;
  return machine;
}

// What the shape of the model allows; empty if all is well.
std::string misfit(const PlanRequest& request) {
  const PlanCase& at = request.base;
  const std::string holds =
      " is more than the model's context of " + std::to_string(request.model.context) + " tokens";
  if (at.context > request.model.context) return "--context " + std::to_string(at.context) + holds;
  if (at.prompt + at.answer > request.model.context)
    return "--prompt and --answer: " + std::to_string(at.prompt + at.answer) + holds;
  for (const std::string& words : request.remedies)
    if (plan_what_if(at, words)->context > request.model.context)
      return "--what-if " + words + holds;
  return {};
}

int plan(const PlanCommand& command, const CLI::App& app) {
  if (command.model.empty() == command.shape.empty())
    return fail_usage("plan takes a MODEL or a --shape, one of them");
  if (command.links.size() > kListMax || command.remedies.size() > kListMax)
    return fail_usage("--link-gbps and --what-if take at most " + std::to_string(kListMax));
  PlanRequest request;
  auto model = model_of(command);
  if (!model) return fail(model.error());
  request.model = std::move(*model);
  request.gpu = command.gpu;
  request.base = command.base;
  request.base.machine = machine_of(command);
  PlanFormat& format = request.base.format;
  const bool file = !request.model.file_layers.empty();
  if (!file && (command.weights == "file" || command.output == "file"))
    return fail_usage("a shape has no weights 'file'");
  format.weights = command.weights.empty() ? file ? PlanWeights::kFile : PlanWeights::kBf16
                                           : *parse_plan_weights(command.weights);
  if (!command.output.empty()) format.output = parse_plan_weights(command.output);
  format.kv = *kernels::parse_kv_type(command.kv);
  request.links = plan_links(request.base.machine, command.links);
  request.remedies = command.remedies;
  // Lengths that nobody asked for fit any model.
  const int32_t context = request.model.context;
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  PlanCase& at = request.base;
  if (!given("--context")) at.context = std::min(at.context, context);
  if (!given("--answer")) at.answer = std::min(at.answer, std::max(1, context / 8));
  if (!given("--prompt")) at.prompt = std::clamp(context - at.answer, 1, at.prompt);
  if (const std::string what = misfit(request); !what.empty()) return fail_usage(what);
  if (command.json)
    print_json(plan_json(request));
  else
    std::fputs(plan_text(request).c_str(), stdout);
  return kExitOk;
}

}  // namespace

void add_plan(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand(
      "plan", "What a model needs of a GPU, how fast it can be there, and what would change that");
  const auto options = std::make_shared<PlanCommand>();
  options->base.chunk = static_cast<int32_t>(worker::WorkerOptions().token_budget);
  options->add_model(*command);
  options->add_machine(*command);
  options->add_case(*command);
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options, command, &action] {
    action = [options, command] { return plan(*options, *command); };
  });
}

}  // namespace headrace::cli
