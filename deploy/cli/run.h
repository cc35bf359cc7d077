#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/client_port.h"
#include "deploy/cli/answer.h"
#include "deploy/cli/options.h"

namespace headrace::cli {

// What `run` was asked for.
struct RunCommand {
  std::string connect;  // empty: in this process
  std::string model;    // when in this process
  EngineOptions engine;
  AskOptions ask;
  std::string resume;  // id of a request to go on with; empty: a new one
  uint32_t from = 0;   // its next position
  bool json = false;
  // Options named on the command line, with the group that --help shows them in; those that came
  // from the environment are for other commands too.
  std::vector<std::pair<std::string, std::string>> named;

  Asked asked(const coordinator::Prompt& prompt) const;
  RequestId request() const;  // the one that was named, else a fresh one
};

// The whole cluster in this process, over memory. Gives the exit status.
int run_local(const RunCommand& command, coordinator::Prompt prompt);
// One request to a cluster that runs elsewhere; with `resume` the prompt is not looked at.
int run_remote(const RunCommand& command, coordinator::Prompt prompt);

}  // namespace headrace::cli
