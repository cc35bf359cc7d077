#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "protocol/link.h"

namespace headrace::cli {

// Under which address others reach what listens here on a wildcard (0.0.0.0, ::), which is of no
// use to them.

bool wildcard(const std::string& host);

// The address of this machine from which packets to `host` leave, by its routes; nothing is sent.
// Empty: no route, or no such host.
std::string leaves_from(const std::string& host);

// Where others reach what listens at `at`: `told` (HOST or HOST:PORT, checked by
// advertised_address) if there is one; else `at` itself; but for a wildcard, the first address
// from which packets to one of `peers` leave that is none of loopback; else the one of the default
// route; else, on a machine without network, loopback.
Endpoint advertised(const Endpoint& at, const std::string& told,
                    const std::vector<std::string>& peers);

// `told` without its port.
std::string advertised_host(const std::string& told);

// Option value HOST or HOST:PORT, no wildcard.
CLI::Validator advertised_address();

}  // namespace headrace::cli
