#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace headrace::cli {

// What the command line asked for; gives the exit status. Set by the command that was named.
using Action = std::function<int()>;

// Each adds its command to the program.
void add_bench(CLI::App& program, Action& action);
void add_coordinator(CLI::App& program, Action& action);
void add_demo(CLI::App& program, Action& action);
void add_doctor(CLI::App& program, Action& action);
void add_inspect(CLI::App& program, Action& action);
void add_metrics(CLI::App& program, Action& action);
void add_plan(CLI::App& program, Action& action);
void add_run(CLI::App& program, Action& action);
void add_serve(CLI::App& program, Action& action);
void add_status(CLI::App& program, Action& action);
void add_tokenize(CLI::App& program, Action& action);
void add_version(CLI::App& program, Action& action);
void add_worker(CLI::App& program, Action& action);

}  // namespace headrace::cli
