#include <cstdio>
#include <memory>

#include "deploy/cli/commands.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

void add_version(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("version", "Print the version");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object");
  command->callback([json, &action] {
    action = [json] {
      if (*json) {
        print_json({{"version", HEADRACE_VERSION}});
      } else {
        std::printf("headrace %s\n", HEADRACE_VERSION);
      }
      return kExitOk;
    };
  });
}

}  // namespace headrace::cli
