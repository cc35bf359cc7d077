#include "tests/simt/order.h"

#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "tests/simt/sanitizers.h"

namespace headrace::simt {
namespace {

Order g_order;

constexpr char kWords[] =
    "ascending, descending, random:<seed>, run-ahead, round-robin, late, eager, early, after";

bool apply(std::string_view word, Order& order) {
  const auto either = [word](std::string_view yes, std::string_view no, bool& to) {
    if (word == yes || word == no) to = word == yes;
    return word == yes || word == no;
  };
  if (word.starts_with("random:")) {
    order.threads = Order::Threads::kRandom;
    const char* end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + 7, end, order.seed);
    return read.ec == std::errc() && read.ptr == end;
  }
  bool up = true;
  const bool named = either("ascending", "descending", up);
  if (named) order.threads = up ? Order::Threads::kAscending : Order::Threads::kDescending;
  return named || either("run-ahead", "round-robin", order.run_ahead) ||
         either("late", "eager", order.late_copies) ||
         either("early", "after", order.early_dependents);
}

}  // namespace

std::string to_string(const Order& order) {
  constexpr const char* kThreads[] = {"ascending", "descending", "random:"};
  std::string text = kThreads[static_cast<size_t>(order.threads)];
  if (order.threads == Order::Threads::kRandom) text += std::to_string(order.seed);
  text += order.run_ahead ? " run-ahead" : " round-robin";
  text += order.late_copies ? " late" : " eager";
  return text + (order.early_dependents ? " early" : " after");
}

std::optional<Order> parse_order(std::string_view text) {
  Order order;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    if (!apply(text.substr(0, space), order)) return std::nullopt;
    text = space == text.npos ? std::string_view() : text.substr(space + 1);
  }
  return order;
}

void set_order(const Order& order) { g_order = order; }
const Order& current_order() { return g_order; }

std::vector<Order> orders() {
  if (const char* text = std::getenv("HEADRACE_SIMT_ORDER")) {
    if (const auto order = parse_order(text)) return {*order};
    throw std::invalid_argument(std::string("HEADRACE_SIMT_ORDER='") + text + "': takes " + kWords);
  }
  using Threads = Order::Threads;
  if (sanitizers::present()) {
    return {{Threads::kDescending, true, true, true, 1},
            {Threads::kDescending, true, false, false, 1}};
  }
  std::vector<Order> all;
  for (const Threads threads : {Threads::kAscending, Threads::kDescending, Threads::kRandom}) {
    for (const bool run_ahead : {true, false}) {
      for (const bool late : {true, false}) all.push_back({threads, run_ahead, late, run_ahead, 1});
    }
  }
  return all;
}

}  // namespace headrace::simt
