#include "protocol/messages.h"

namespace headrace {

const char* name(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kBoth:
      return "both";
  }
  return "unknown";
}

}  // namespace headrace
