#include "kernels/kv.h"

namespace headrace::kernels {

const char* name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kF32:
      return "f32";
    case KvType::kBf16:
      return "bf16";
    case KvType::kFp8:
      return "fp8";
    case KvType::kInt8:
      return "int8";
  }
  return "?";
}

}  // namespace headrace::kernels
