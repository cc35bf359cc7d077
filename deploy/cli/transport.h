#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "protocol/result.h"
#include "worker/nccl_lanes.h"
#include "worker/options.h"

namespace headrace::cli {

// How KV goes between workers: over NCCL from GPU to GPU, or over tcp, which every pair can.
struct TransportOptions {
  std::string handoff = "auto";  // "auto", "tcp", "nccl"
  std::string nccl_library;      // empty: libnccl.so.2 as the loader finds it
  bool trust_links = false;      // the operator's word that nobody else is on the links

  void add_to(CLI::App& command);
  // The same options, spelled out for a child process.
  std::vector<std::string> arguments() const;

  struct Choice {
    std::optional<worker::NcclLanesOptions> lanes;  // what to make them with; none: all over tcp
    std::string sentence;  // says so; empty where nobody would expect anything but tcp
    // For the worker. Lanes that cannot be made after all are told, and tcp is used.
    decltype(worker::WorkerOptions::lanes) maker() const;
  };
  // For a worker whose device this is. An error, which names the option, if --handoff nccl asks for
  // what cannot be. Opens the library to see that.
  Result<Choice> choose(const std::string& device) const;
};

}  // namespace headrace::cli
