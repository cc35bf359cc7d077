#include <doctest/doctest.h>
#include <stdio.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/simt/order.h"
#include "tests/simt/planted/plants.h"
#include "tests/simt/sanitizers.h"

// Each planted mistake is noticed by the builds that its table says, and its good twin is silent in
// every order. Where a mistake may end the process, it runs in a child: this program again.
namespace headrace::simt::planted {
namespace {

constexpr const char* kChildVariable = "HEADRACE_SIMT_PLANT";

std::vector<Plant> all_plants() {
  std::vector<Plant> all;
  for (const auto plants :
       {block_plants(), warp_plants(), copy_plants(), bulk_plants(), dependent_plants()}) {
    all.insert(all.end(), plants.begin(), plants.end());
  }
  return all;
}

const char* word(Sees sees) {
  switch (sees) {
    case Sees::kNothing:
      return "nothing";
    case Sees::kValues:
      return "values";
    case Sees::kFault:
      return "fault";
    case Sees::kReport:
      return "report";
  }
  return "";
}

Sees expected(const Plant& plant) {
  return sanitizers::address() ? plant.asan : sanitizers::thread() ? plant.tsan : plant.plain;
}

// What this process sees of it, sanitizers aside; a fault's words go to `text`.
Sees look(const Plant& plant, std::string& text) {
  Sees seen = Sees::kNothing;
  for (const Order& order : orders()) {
    set_order(order);
    const Outcome outcome = plant.run(true);
    if (outcome.fault) {
      text += "fault: " + outcome.fault->what + "\n";
      seen = Sees::kFault;
    } else if (!outcome.right && seen == Sees::kNothing) {
      seen = Sees::kValues;
    }
  }
  return seen;
}

// The same of a child, whose sanitizer may report.
Sees look_at_child(const Plant& plant, std::string& text) {
  setenv(kChildVariable, plant.name, 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  // One report is enough, and naming lines takes long.
  FILE* child = popen(("TSAN_OPTIONS=\"$TSAN_OPTIONS:halt_on_error=1\" '" + self +
                       "' --no-skip --test-case='planted child' 2>&1")
                          .c_str(),
                      "r");
  unsetenv(kChildVariable);
  REQUIRE(child);
  char chunk[4096];
  while (const size_t got = fread(chunk, 1, sizeof chunk, child)) text.append(chunk, got);
  const int status = pclose(child);
  for (const char* report :
       {"ERROR: AddressSanitizer", "runtime error:", "ThreadSanitizer: data race"}) {
    if (text.find(report) != text.npos) {
      CHECK(status != 0);
      CHECK(text.find("tests/simt/planted/") != text.npos);  // the mistake's own lines
      return Sees::kReport;
    }
  }
  CHECK(status == 0);
  for (const Sees sees : {Sees::kNothing, Sees::kValues, Sees::kFault}) {
    if (text.find(std::string("saw ") + word(sees)) != text.npos) return sees;
  }
  FAIL("a child ended without a word: " << text);
  return Sees::kNothing;
}

TEST_CASE("planted child" * doctest::skip()) {
  const char* name = std::getenv(kChildVariable);
  if (!name) return;
  for (const Plant& plant : all_plants()) {
    if (std::string(name) != plant.name) continue;
    std::string text;
    const Sees seen = look(plant, text);
    printf("%ssaw %s\n", text.c_str(), word(seen));
  }
}

TEST_CASE("simt: planted mistakes are caught where the table says") {
  for (const Plant& plant : all_plants()) {
    CAPTURE(std::string(plant.name));
    std::string text;
    const Sees seen = sanitizers::present() ? look_at_child(plant, text) : look(plant, text);
    CAPTURE(text);
    CHECK(std::string(word(seen)) == std::string(word(expected(plant))));
  }
}

TEST_CASE("simt: without the mistake there is silence in every order") {
  for (const Plant& plant : all_plants()) {
    for (const Order& order : orders()) {
      CAPTURE(std::string(plant.name));
      CAPTURE(to_string(order));
      set_order(order);
      const Outcome outcome = plant.run(false);
      CHECK_MESSAGE(!outcome.fault, outcome.fault->what);
      CHECK(outcome.right);
    }
  }
}

TEST_CASE("simt: README's table is ours") {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "README.md");
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(line);
  for (const Plant& plant : all_plants()) {
    const std::string row = std::string("| ") + plant.name + " | " + word(plant.plain) + " | " +
                            word(plant.asan) + " | " + word(plant.tsan) + " |";
    CHECK_MESSAGE(std::count(rows.begin(), rows.end(), row) == 1, row);
  }
}

TEST_CASE("simt: every planted mistake is caught by one build") {
  CHECK(all_plants().size() >= 15);
  for (const Plant& plant : all_plants()) {
    CAPTURE(std::string(plant.name));
    CHECK((plant.plain != Sees::kNothing || plant.asan != Sees::kNothing ||
           plant.tsan != Sees::kNothing));
  }
}

}  // namespace
}  // namespace headrace::simt::planted
