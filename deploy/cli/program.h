#pragma once

namespace headrace::cli {

// The whole program: reads the arguments and the environment, runs the command, gives the exit
// status (0 done, 1 failed, 2 wrong usage). Errors are one line on stderr each.
int run_program(int argc, char** argv);

}  // namespace headrace::cli
