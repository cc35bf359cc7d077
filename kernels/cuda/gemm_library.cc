#include "kernels/cuda/gemm_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "kernels/device.h"

namespace headrace::cuda {
namespace {

using kernels::DeviceError;

// Shapes that are remembered; chunks of prompts have many lengths.
constexpr size_t kPlansMax = 256;
// What it is told of w and x; its own guess is 256 bytes.
constexpr uint32_t kAlignment = 16;

std::string title(int ordinal) { return "cuda:" + std::to_string(ordinal) + ": cuBLASLt: "; }

// The library and its name. It stays open for the process: nothing tells when its threads end.
std::pair<void*, std::string> open(int ordinal) {
  if (const char* own = std::getenv("HEADRACE_CUBLASLT"); own != nullptr && own[0] != '\0') {
    if (void* library = dlopen(own, RTLD_NOW | RTLD_LOCAL)) return {library, own};
    throw DeviceError(title(ordinal) + dlerror());
  }
  std::string why;
  for (const char* file : GemmLibrary::kFiles) {
    if (void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return {library, file};
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
  }
  throw DeviceError(title(ordinal) + why);
}

cublaslt::Functions functions_of(int ordinal) {
  const auto [library, file] = open(ordinal);
  const auto take = [&, from = library, name = file](auto& function, const char* symbol) {
    void* const at = dlsym(from, symbol);
    if (at == nullptr) throw DeviceError(title(ordinal) + name + " has no " + symbol);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(at);
  };
  cublaslt::Functions f{};
  take(f.create, "cublasLtCreate");
  take(f.destroy, "cublasLtDestroy");
  take(f.status_name, "cublasLtGetStatusName");
  take(f.version, "cublasLtGetVersion");
  take(f.operation_create, "cublasLtMatmulDescCreate");
  take(f.operation_set, "cublasLtMatmulDescSetAttribute");
  take(f.operation_destroy, "cublasLtMatmulDescDestroy");
  take(f.layout_create, "cublasLtMatrixLayoutCreate");
  take(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  take(f.preference_create, "cublasLtMatmulPreferenceCreate");
  take(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  take(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  take(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  take(f.multiply, "cublasLtMatmul");
  return f;
}

}  // namespace

GemmLibrary::GemmLibrary(int ordinal) : ordinal_(ordinal), functions_(functions_of(ordinal)) {
  check(functions_.create(&handle_), "its start");
}

GemmLibrary::~GemmLibrary() {
  for (const auto& [key, plan] : plans_) forget(plan);
  functions_.destroy(handle_);
}

void GemmLibrary::check(cublaslt::Status status, const char* what) const {
  if (status == cublaslt::kDone) return;
  throw DeviceError(title(ordinal_) + what + ": " + functions_.status_name(status));
}

void GemmLibrary::multiply(const Gemm& shape, const uint16_t* w, const uint16_t* x, float* y,
                           const Context& context) {
  const uint32_t alignment =
      reinterpret_cast<uintptr_t>(y) % kAlignment == 0 ? kAlignment : sizeof(float);
  const Plan& p = plan(shape, alignment, context.workspace_bytes);
  const float alpha = 1;
  const float beta = shape.add ? 1 : 0;
  check(functions_.multiply(handle_, p.operation, &alpha, w, p.w, x, p.x, &beta, y, p.y, y, p.y,
                            &p.how.algorithm, context.workspace, p.how.workspace, context.stream),
        "a product");
}

const GemmLibrary::Plan& GemmLibrary::plan(const Gemm& shape, uint32_t alignment,
                                           size_t workspace) {
  const Key key{shape.m, shape.n, shape.k, shape.stride, alignment, workspace};
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  if (plans_.size() >= kPlansMax) {
    for (const auto& [old, plan] : plans_) forget(plan);
    plans_.clear();
  }
  Plan made;
  try {
    describe(made, shape);
    choose(made, alignment, workspace);
  } catch (...) {
    forget(made);
    throw;
  }
  return plans_.emplace(key, made).first->second;
}

// The library's matrices lie column after column: what are rows here are columns there, so that it
// is told y^T = w x^T with w as the transposed of what it sees.
void GemmLibrary::describe(Plan& plan, const Gemm& shape) const {
  const auto& f = functions_;
  check(f.operation_create(&plan.operation, cublaslt::kSumsF32, cublaslt::kF32), "an operation");
  const int32_t transposed = cublaslt::kTransposed;
  check(f.operation_set(plan.operation, cublaslt::kOperationA, &transposed, sizeof transposed),
        "an operation");
  const auto m = static_cast<uint64_t>(shape.m);
  const auto n = static_cast<uint64_t>(shape.n);
  const auto k = static_cast<uint64_t>(shape.k);
  check(f.layout_create(&plan.w, cublaslt::kBf16, k, n, shape.k), "a layout");
  check(f.layout_create(&plan.x, cublaslt::kBf16, k, m, shape.k), "a layout");
  check(f.layout_create(&plan.y, cublaslt::kF32, n, m, shape.stride), "a layout");
}

void GemmLibrary::choose(Plan& plan, uint32_t alignment, size_t workspace) const {
  cublaslt::Preference wish = nullptr;
  check(functions_.preference_create(&wish), "a preference");
  int count = 0;
  const cublaslt::Status status = ask(plan, wish, alignment, workspace, count);
  functions_.preference_destroy(wish);
  check(status, "the choice of an algorithm");
  if (count < 1) throw DeviceError(title(ordinal_) + "it has no algorithm for a product");
  check(plan.how.state, "the choice of an algorithm");
  if (plan.how.workspace > workspace)
    throw DeviceError(title(ordinal_) + "an algorithm wants more memory than it is given");
}

cublaslt::Status GemmLibrary::ask(Plan& plan, cublaslt::Preference wish, uint32_t alignment,
                                  size_t workspace, int& count) const {
  const auto& f = functions_;
  auto status = f.preference_set(wish, cublaslt::kWorkspaceMax, &workspace, sizeof workspace);
  for (int i = 0; i < 4 && status == cublaslt::kDone; i++) {
    const uint32_t bytes = i < 2 ? kAlignment : alignment;
    status = f.preference_set(wish, cublaslt::kAlignments[i], &bytes, sizeof bytes);
  }
  if (status != cublaslt::kDone) return status;
  return f.heuristic(handle_, plan.operation, plan.w, plan.x, plan.y, plan.y, wish, 1, &plan.how,
                     &count);
}

void GemmLibrary::forget(const Plan& plan) const {
  if (plan.operation) functions_.operation_destroy(plan.operation);
  for (const cublaslt::Layout layout : {plan.w, plan.x, plan.y})
    if (layout) functions_.layout_destroy(layout);
}

}  // namespace headrace::cuda
