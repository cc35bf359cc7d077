#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "deploy/cli/child.h"
#include "deploy/cli/link_end.h"
#include "deploy/cli/transport.h"

namespace headrace::cli {

// What `doctor` was asked about links.
struct LinkOptions {
  uint32_t mib = 64;  // of each hand-off; 0: links are not tested
  std::string device = "auto";
  std::string answer;  // HOST:PORT: be the other end there
  std::string peer;    // HOST:PORT: test the link to the one that answers there
  bool insecure_mesh = false;
  bool supervised = false;  // by test_pair
  TransportOptions transport;

  void add_to(CLI::App& command);
};

// A hand-off over tcp, then two over NCCL, of which the first opens the communicator. As JSON:
// "tcp_bytes_per_second", "nccl_bytes_per_second"; "why" not NCCL; "error": no hand-off at all.
nlohmann::ordered_json test_link(LinkEnd& end, const Endpoint& peer);
// The same from one GPU of this machine to another, by two processes of `program`, which are gone
// when this returns: within kPairWithin.
constexpr std::chrono::seconds kPairWithin{90};
nlohmann::ordered_json test_pair(const std::string& from, const std::string& to,
                                 const LinkOptions& options,
                                 const std::string& program = Child::kThisProgram);
// One line: "NCCL 212.3 GB/s, tcp 3.1 GB/s".
std::string link_text(const nlohmann::ordered_json& link);

// `doctor --answer`: until a signal. `doctor --peer`: one test. Exit statuses.
int answer_links(const LinkOptions& options);
int test_peer(const LinkOptions& options, bool json);

}  // namespace headrace::cli
