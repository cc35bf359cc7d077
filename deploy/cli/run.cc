#include "deploy/cli/run.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/numbers.h"
#include "deploy/cli/output.h"
#include "protocol/random.h"

namespace headrace::cli {

namespace {

// The first named option of the groups; empty: none. Measured limits are of use everywhere.
std::string first_of(const RunCommand& command, const std::vector<std::string>& groups) {
  for (const auto& [name, group] : command.named)
    if (name != "--state-dir" && std::find(groups.begin(), groups.end(), group) != groups.end())
      return name;
  return {};
}

// `run --connect A --resume ID`: nothing is asked that is not known there.
int resume(const RunCommand& command, const std::vector<std::string>& words) {
  if (command.connect.empty())
    return fail_usage("--resume goes on with a request of a running cluster: give --connect");
  if (!words.empty() || !command.ask.prompt_ids.empty())
    return fail_usage("--resume takes no prompt: the cluster has it");
  if (!command.ask.request_id.empty())
    return fail_usage("--resume names the request already: no --request-id with it");
  if (const auto idle = first_of(command, {"Prompt", "Sampling", "End"}); !idle.empty())
    return fail_usage(idle + " does nothing with --resume: the request goes on as it was asked");
  return run_remote(command, {});
}

// `run MODEL [PROMPT]`, but with --connect the model is elsewhere: `run --connect A [PROMPT]`.
int run(RunCommand command, std::vector<std::string> words) {
  if (command.connect.empty()) {
    if (words.empty()) return fail_usage("which model? 'headrace run MODEL [PROMPT]'");
    if (words.front().empty())
      return fail_usage("the name of the model is empty: 'headrace run MODEL [PROMPT]'");
    command.model = words.front();
    words.erase(words.begin());
  }
  if (const auto idle = first_of(command, {"Engine"}); !idle.empty() && !command.connect.empty())
    return fail_usage(idle + " does nothing with --connect: the workers there compute the answer");
  if (!command.resume.empty()) return resume(command, words);
  if (words.size() > 1) {
    return fail_usage("more than one prompt: put it in quotes; unexpected '" + words[1] + "'");
  }
  if (const Status fine = command.ask.check(); !fine.ok()) return fail_usage(fine.message);
  auto prompt = command.ask.read_prompt(words.empty() ? "" : words[0], !words.empty());
  if (!prompt) return fail_usage(prompt.error().message);
  return command.connect.empty() ? run_local(command, std::move(*prompt))
                                 : run_remote(command, std::move(*prompt));
}

}  // namespace

Asked RunCommand::asked(const coordinator::Prompt& prompt) const {
  Asked a;
  a.max_tokens = ask.max_tokens;
  a.plain = std::holds_alternative<std::string>(prompt);
  a.stops = !ask.stop.empty() || !ask.stop_tokens.empty();
  a.resumed = !resume.empty();
  a.kv_digest = ask.kv_digest;
  return a;
}

RequestId RunCommand::request() const {
  const std::string& id = resume.empty() ? ask.request_id : resume;
  OsRandom random;
  return id.empty() ? random.mint<RequestId>() : *parse_request_id(id);
}

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
  const auto resume = command
                          ->add_option("--resume", options->resume,
                                       "Go on with the request of this --request-id; takes no "
                                       "prompt")
                          ->check(request_id());
  command
      ->add_option("--from", options->from,
                   "With --resume: how many tokens of its answer are there already")
      ->check(whole(0, INT32_MAX))
      ->needs(resume)
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object at the end instead of text");
  options->ask.add_to(*command);
  options->engine.add_to(*command);
  command->callback([command, options, words, &action] {
    for (const CLI::Option* option : command->parse_order())
      options->named.emplace_back("--" + option->get_single_name(), option->get_group());
    action = [options, words] { return run(*options, *words); };
  });
}

}  // namespace headrace::cli
