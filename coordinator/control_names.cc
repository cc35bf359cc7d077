#include "coordinator/control_names.h"

namespace headrace::coordinator {

bool ControlNames::add(std::string_view name, Token id) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  begins_[static_cast<uint8_t>(name[0])] = true;
  uint32_t node = 0;
  for (char c : name) {
    const auto [it, added] =
        edges_.try_emplace(edge(node, static_cast<uint8_t>(c)), static_cast<uint32_t>(ids_.size()));
    if (added) ids_.push_back(-1);
    node = it->second;
  }
  ids_[node] = id;
  return true;
}

ControlNames::Match ControlNames::match(std::string_view text, size_t at) const {
  Match best;
  if (!begins_[static_cast<uint8_t>(text[at])]) return best;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto it = edges_.find(edge(node, static_cast<uint8_t>(text[i])));
    if (it == edges_.end()) break;
    node = it->second;
    if (ids_[node] >= 0) best = {i + 1 - at, ids_[node]};
  }
  return best;
}

}  // namespace headrace::coordinator
