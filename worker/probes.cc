#include "worker/probes.h"

namespace headrace::worker {

const char* name(StepKind kind) {
  switch (kind) {
    case StepKind::kPrefill:
      return "prefill";
    case StepKind::kDecode:
      return "decode";
    case StepKind::kMixed:
      return "mixed";
  }
  return "unknown";
}

}  // namespace headrace::worker
