#include "kernels/account.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace headrace::kernels {

void Accounts::add(const char* op, const Cost& cost, double seconds) {
  auto it = std::find_if(accounts_.begin(), accounts_.end(),
                         [&](const OpAccount& a) { return std::string_view(a.op) == op; });
  if (it == accounts_.end()) it = accounts_.insert(it, OpAccount{op, {}, 0, 0});
  it->cost += cost;
  it->seconds += seconds;
  it->runs += 1;
}

std::vector<OpAccount> Accounts::take() { return std::exchange(accounts_, {}); }

}  // namespace headrace::kernels
