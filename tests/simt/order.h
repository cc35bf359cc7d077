#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::simt {

// How the emulator runs what a GPU would run at once: one choice of the many a GPU may take. A
// kernel is right when it is right in each.
struct Order {
  enum class Threads : uint8_t { kAscending, kDescending, kRandom };

  // Which of several threads (and blocks) goes first.
  Threads threads = Threads::kAscending;
  // Threads that a barrier lets go run on before all others; else they queue behind them.
  bool run_ahead = true;
  // cp.async and bulk copies happen when they are waited for, and poison their target until then;
  // else at once.
  bool late_copies = true;
  // A dependent launch begins as soon as the launch in front allows it; else after its end.
  bool early_dependents = true;
  uint32_t seed = 1;  // of kRandom

  bool operator==(const Order&) const = default;
};

// "descending run-ahead late early", "random:7 round-robin eager after".
std::string to_string(const Order& order);
std::optional<Order> parse_order(std::string_view text);

// The order of launches from now on; ascending, run-ahead, late, early at the start.
void set_order(const Order& order);
const Order& current_order();

// What a kernel's test goes through: three thread orders, run-ahead or not, copies late or eager in
// a plain build; under a sanitizer, which sees more in each and takes longer, two of these.
// HEADRACE_SIMT_ORDER in the environment: that one alone; std::invalid_argument, with the words that
// there are, where it has another one.
std::vector<Order> orders();

}  // namespace headrace::simt
