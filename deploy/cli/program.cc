#include "deploy/cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

constexpr size_t kProblemMax = 300;  // bytes of what is said of a wrong file

// Remembers what the file sets: a wrong value of it shows only later, as that of any option.
class NotedConfig final : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    auto read = CLI::ConfigTOML::from_config(input);
    for (const CLI::ConfigItem& item : read) names_.insert("--" + item.name);
    return read;
  }
  bool has(const std::string& option) const { return names_.contains(option); }

 private:
  mutable std::set<std::string> names_;
};

// Options of commands in sections of their names. Given twice, the command line counts, then the
// file, then the environment. A key that no option has is an error.
void add_config(CLI::App& program) {
  const char* const named = std::getenv("HEADRACE_CONFIG");
  program.set_config("--config", named != nullptr ? named : "",
                     "FILE with options, before the command: a section as [serve] for each, lines "
                     "as trust-links = true. Or HEADRACE_CONFIG",
                     named != nullptr && *named != '\0');
  program.allow_config_extras(CLI::config_extras_mode::error);
  program.config_formatter(std::make_shared<NotedConfig>());
}

// --kv-blocks from HEADRACE_KV_BLOCKS.
void name_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
    std::string variable = "HEADRACE_" + option->get_lnames()[0];
    for (char& c : variable) {
      c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    option->envname(variable);
  }
}

// Every option of a command may come from the environment, once it is that command which is asked
// for: another one may have an option of the same name that takes other values.
void take_environment(CLI::App& command) {
  command.preparse_callback([&command](size_t) { name_environment(command); });
  for (CLI::App* part : command.get_subcommands({})) take_environment(*part);
}

void add_commands(CLI::App& program, Action& action) {
  add_serve(program, action);
  add_run(program, action);
  add_status(program, action);
  add_inspect(program, action);
  add_doctor(program, action);
  add_bench(program, action);
  add_demo(program, action);
  add_plan(program, action);
  add_tokenize(program, action);
  add_coordinator(program, action);
  add_worker(program, action);
  add_metrics(program, action);
  add_version(program, action);
  program.require_subcommand(1, 1);
  program.footer(
      "Exit status: 0 done, 1 failed, 2 wrong usage. 'headrace COMMAND --help' has more.");
  for (CLI::App* command : program.get_subcommands({})) take_environment(*command);
}

bool on_line(const std::vector<std::string>& words, const std::string& option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word == option || word.starts_with(option + "=");
  });
}

// What is wrong, with the file in which it stands if it stands in one.
std::string describe(const CLI::App& program, const CLI::ParseError& problem,
                     const std::vector<std::string>& words) {
  std::string what = problem.what();
  const std::string option = what.substr(0, what.find(':'));
  const auto noted = std::dynamic_pointer_cast<NotedConfig>(program.get_config_formatter());
  const bool of_file = dynamic_cast<const CLI::ConfigError*>(&problem) != nullptr ||
                       (noted && noted->has(option) && !on_line(words, option));
  if (!of_file) return what;
  constexpr std::string_view kUnknown = "INI was not able to parse ";
  if (what.starts_with(kUnknown)) what = "no option " + what.substr(kUnknown.size());
  if (what.size() > kProblemMax) what = what.substr(0, kProblemMax) + "...";
  return program.get_config_ptr()->as<std::string>() + ": " + what;
}

int usage_error(const CLI::App& program, const CLI::ParseError& problem,
                const std::vector<std::string>& words) {
  std::string hint = "; 'headrace --help' shows what there is";
  for (const CLI::App* command : program.get_subcommands()) {
    hint = "; 'headrace " + command->get_name() + " --help' shows what there is";
  }
  return fail_usage(describe(program, problem, words) + hint);
}

// The word where a command should be, if it is none: CLI11 would only say that one is missing.
std::string unknown_command(const CLI::App& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == argv[1]) return {};
  return argv[1];
}

// A file or a connection that took the number of a closed stdout would get what is printed. So all
// three are open: those that were not, for the other direction, so that using them still fails.
void hold_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// What was to be printed and could not be is a failure, whatever else went well.
int printed(int status) {
  const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (good || status != 0) return status;
  return fail(error(Errc::kUnavailable, "cannot write all of the output to standard output"));
}

}  // namespace

int run_program(int argc, char** argv) {
  hold_standard_streams();
  // A reader that went away is an error of that write, not our end.
  signal(SIGPIPE, SIG_IGN);
  CLI::App program("Headrace: an LLM inference cluster", "headrace");
  program.set_version_flag("--version", "headrace " HEADRACE_VERSION);
  Action action;
  add_commands(program, action);
  add_config(program);
  if (const std::string word = unknown_command(program, argc, argv); !word.empty())
    return fail_usage("no command '" + word + "'; 'headrace --help' shows what there is");
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp& asked) {
    return program.exit(asked);
  } catch (const CLI::CallForAllHelp& asked) {
    return program.exit(asked);
  } catch (const CLI::CallForVersion& asked) {
    return program.exit(asked);
  } catch (const CLI::ParseError& problem) {
    return usage_error(program, problem, {argv, argv + argc});
  }
  try {
    return printed(action());
  } catch (const std::bad_alloc&) {
    return fail(error(Errc::kOverloaded, "not enough memory"));
  } catch (const std::exception& failure) {
    return fail(error(Errc::kInternal, failure.what()));
  }
}

}  // namespace headrace::cli
