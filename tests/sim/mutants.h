#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "protocol/planted.h"

namespace headrace::sim {

// A planted mistake, and how it shows.
struct Mutant {
  Mistake mistake{};
  const char* name = "";
  // A scene of its own where the campaign cannot see it; returns what is wrong, or nothing.
  std::function<std::string()> scene{};
};
const std::vector<Mutant>& mutants();

// Scenes; each says what is wrong, or nothing.
std::string scene_hello_of_another_attempt();
std::string scene_hello_to_another_incarnation();
std::string scene_lease_runs_out();
std::string scene_cancel_while_in_step();
std::string scene_deadline_without_worker();

struct Caught {
  uint64_t seed = 0;      // 0: by its scene
  std::string assertion;  // empty: not caught
};
// Runs seeds [1, seeds], or its scene, in a process of its own until something is wrong; `plant`
// is called there first.
Caught hunt(const Mutant& mutant, uint64_t seeds, const std::function<void(Mistake)>& plant);

}  // namespace headrace::sim
