#include "tests/simt/order.h"

#include <charconv>
#include <cstdlib>

#include "tests/simt/sanitizers.h"

namespace headrace::simt {
namespace {

Order g_order;

bool apply(std::string_view word, Order& order) {
  if (word == "ascending") {
    order.threads = Order::Threads::kAscending;
  } else if (word == "descending") {
    order.threads = Order::Threads::kDescending;
  } else if (word.starts_with("random:")) {
    order.threads = Order::Threads::kRandom;
    const char* end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + 7, end, order.seed);
    return read.ec == std::errc() && read.ptr == end;
  } else if (word == "run-ahead" || word == "round-robin") {
    order.run_ahead = word == "run-ahead";
  } else if (word == "late" || word == "eager") {
    order.late_copies = word == "late";
  } else if (word == "early" || word == "after") {
    order.early_dependents = word == "early";
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string to_string(const Order& order) {
  std::string text = order.threads == Order::Threads::kAscending    ? "ascending"
                     : order.threads == Order::Threads::kDescending ? "descending"
                                                                    : "random:";
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
