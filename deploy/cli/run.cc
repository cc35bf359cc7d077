#include "deploy/cli/run.h"

#include <memory>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

// `run MODEL [PROMPT]`, but with --connect the model is elsewhere: `run --connect A [PROMPT]`.
int run(RunCommand command, std::vector<std::string> words) {
  if (command.connect.empty()) {
    if (words.empty()) return fail_usage("which model? 'headrace run MODEL [PROMPT]'");
    command.model = words.front();
    words.erase(words.begin());
  }
  if (words.size() > 1) {
    return fail_usage("more than one prompt: put it in quotes; unexpected '" + words[1] + "'");
  }
  auto prompt = command.ask.read_prompt(words.empty() ? "" : words[0], !words.empty());
  if (!prompt) return fail_usage(prompt.error().message);
  return command.connect.empty() ? run_local(command, std::move(*prompt))
                                 : run_remote(command, std::move(*prompt));
}

}  // namespace

void add_run(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand(
      "run",
      "Answer one prompt: 'run MODEL [PROMPT]' here, 'run --connect HOST:PORT [PROMPT]' there");
  const auto options = std::make_shared<RunCommand>();
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("MODEL PROMPT", *words,
                      "GGUF file (not with --connect), then the prompt; "
                      "without a prompt stdin is read, byte for byte");
  command->add_option("--connect", options->connect, "HOST:PORT of a running cluster")
      ->check(endpoint());
  command->add_flag("--json", options->json, "One JSON object at the end instead of text");
  options->ask.add_to(*command);
  options->engine.add_to(*command);
  command->callback(
      [options, words, &action] { action = [options, words] { return run(*options, *words); }; });
}

}  // namespace headrace::cli
