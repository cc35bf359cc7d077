#include "tests/sim/mutants.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "protocol/slowdown.h"

namespace headrace::sim {
namespace {

// Each mistake shows within so many seeds, or in its scene.
constexpr uint64_t kSeeds = 3000;

TEST_CASE("every planted mistake is caught") {
  const char* only = std::getenv("HEADRACE_SIM_MUTANT");
  std::string table;
  for (const Mutant& m : mutants()) {
    if (only != nullptr && *only != 0 && std::string(m.name).find(only) == std::string::npos)
      continue;
    const Caught caught = hunt(m, kSeeds, [](Mistake mistake) { planted_mistake = mistake; });
    char line[256];
    std::snprintf(line, sizeof line, "%-46s %5s  %s\n", m.name,
                  m.scene ? "scene" : std::to_string(caught.seed).c_str(),
                  caught.assertion.empty() ? "NOT CAUGHT" : caught.assertion.c_str());
    table += line;
    CHECK_MESSAGE(!caught.assertion.empty(), m.name);
  }
  MESSAGE("\nmistake" << std::string(41, ' ') << "seed  what saw it\n" << table);
}

TEST_CASE("without a mistake nothing is caught") {
  Mutant none{Mistake::kNone, "none"};
  const Caught nothing =
      hunt(none, kSlowdown > 1 ? 5 : 100, [](Mistake m) { planted_mistake = m; });
  CHECK(nothing.assertion == "");
  for (const Mutant& m : mutants())
    if (m.scene) CHECK_MESSAGE(m.scene() == "", m.name);
}

TEST_CASE("every mistake has its line in the table, once") {
  std::set<Mistake> seen;
  for (const Mutant& m : mutants()) CHECK(seen.insert(m.mistake).second);
  CHECK(seen.size() + 1 == static_cast<size_t>(Mistake::kCount));
}

}  // namespace
}  // namespace headrace::sim
