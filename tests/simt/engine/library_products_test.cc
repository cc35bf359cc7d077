#include "kernels/cuda/library_products.h"

#include "kernels/cuda_device.h"
#include "tests/simt/engine/cublaslt_case.h"
#include "tests/simt/matmul_case.h"

namespace headrace::simt {
namespace {

using cuda::LibraryProducts;

// Of the root of the mean square: weights are rounded to bf16, by 2^-9 of each at most, and a gate
// and what it lets through are two of them.
constexpr double kRounding = 1.0 / 256;

constexpr cuda::LibraryRoom kRoom{
    .weights = 1 << 20, .halves = 1 << 16, .work = 1 << 16};  // 64 strips of K 512

kernels::Buffer device_bytes(size_t bytes) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
  return {static_cast<std::byte*>(memory), bytes, [](std::byte* p) { cudaFree(p); }};
}

void check_rounded(const std::vector<float>& got, const std::vector<float>& truth) {
  CHECK(kernels::testing::error_of(got, truth).nmse < kRounding * kRounding);
}

TEST_CASE("products by the library are the reference's, but for weights as bf16") {
  const StandIn standin;
  LibraryProducts products(0, device_bytes(kRoom.bytes()), kRoom);
  for (const SourceType type : kSourceTypes) {
    CAPTURE(static_cast<int>(type));
    const ProductCase c(type, {37, 70, 96}, false, 61);
    const ProductRun run(c);
    for (const bool add : {false, true}) {
      const std::vector<float> before =
          add ? random_floats(37 * 70, 62) : std::vector<float>(37 * 70, NAN);
      const DeviceBuffer<float> y(before);
      const TestStream stream;
      REQUIRE(products.enqueue(kernels::MatMul{run.w, run.rows(), 37, y.get(), 70, add},
                               run.context(stream.get())) == cudaSuccess);
      stream.wait();
      check_rounded(y.values(), c.product(add ? before : std::vector<float>()));
    }
  }
}

TEST_CASE("products by the library: gate and up") {
  const StandIn standin;
  LibraryProducts products(0, device_bytes(kRoom.bytes()), kRoom);
  for (const SourceType type : kSourceTypes) {
    CAPTURE(static_cast<int>(type));
    const ProductCase c(type, {33, 144, 64}, true, 63);
    const ProductRun run(c);
    const RowsCase out(33, 72);
    const TestStream stream;
    REQUIRE(products.enqueue(kernels::MatMulSwiGlu{run.w, run.rows(), 33, out.out(true, true)},
                             run.context(stream.get())) == cudaSuccess);
    stream.wait();
    check_rounded(out.f32.values(), c.gated());
    out.check_bf16(out.f32.values(), 0);
  }
}

TEST_CASE("products by the library: weights that do not fit are taken in parts") {
  const StandIn standin;
  LibraryProducts products(0, device_bytes(kRoom.bytes()), kRoom);
  const ProductCase c(SourceType::kQ4_0, {2, 16 * 70, 512}, false, 64);
  const ProductRun run(c);
  const DeviceBuffer<float> y(std::vector<float>(2 * 16 * 70, NAN));
  const TestStream stream;
  const int asked = StandIn::count("standin_asked");
  REQUIRE(products.enqueue(kernels::MatMul{run.w, run.rows(), 2, y.get(), 16 * 70, false},
                           run.context(stream.get())) == cudaSuccess);
  stream.wait();
  CHECK(StandIn::count("standin_asked") == asked + 2);
  check_rounded(y.values(), c.product());
  const ProductCase paired(SourceType::kQ8_0, {20, 16 * 66, 512}, true, 65);
  const ProductRun pairs(paired);
  const RowsCase out(20, 8 * 66);
  REQUIRE(products.enqueue(kernels::MatMulSwiGlu{pairs.w, pairs.rows(), 20, out.out(true, true)},
                           pairs.context(stream.get())) == cudaSuccess);
  stream.wait();
  // Of gate and up 48 strips at a time.
  CHECK(StandIn::count("standin_asked") == asked + 4);
  check_rounded(out.f32.values(), paired.gated());
  out.check_bf16(out.f32.values(), 0);
}

TEST_CASE("products by the library: what they do not do is refused") {
  const StandIn standin;
  LibraryProducts products(0, device_bytes(kRoom.bytes()), kRoom);
  const ProductCase c(SourceType::kQ4_1, {1, 16, 64}, false, 66);
  const ProductRun run(c);
  const DeviceBuffer<float> y(std::vector<float>(16, NAN));
  const kernels::MatMul good{run.w, run.rows(), 1, y.get(), 16, false};
  const auto result = [&](auto change) {
    kernels::MatMul op = good;
    change(op);
    return products.enqueue(op, {});
  };
  CHECK(result([](auto& op) { op.w.paired = true; }) == cudaErrorInvalidValue);
  CHECK(result([](auto& op) { op.w.tiling = kernels::Tiling::kLanes; }) == cudaErrorInvalidValue);
  CHECK(result([](auto& op) { op.x.bf16 = nullptr; }) == cudaErrorInvalidValue);
  CHECK(result([](auto& op) { op.stride = 15; }) == cudaErrorInvalidValue);
  CHECK(result([](auto& op) { op.w.cols = 1 << 14; }) == cudaErrorInvalidValue);
  CHECK(result([](auto& op) { op.rows = 0; }) == cudaSuccess);
}

// What a device makes of a product.
std::vector<float> on_device(kernels::Device& device, const ProductCase& c) {
  const auto there = [&](const auto& values) {
    kernels::Buffer to = device.allocate(values.size() * sizeof(values[0]));
    device.write(to.data(), std::as_bytes(std::span(values)));
    return to;
  };
  const auto weights = there(c.weights);
  const auto x = there(c.x);
  const auto sums = there(c.sums);
  std::vector<float> y(ProductCase::count(c.shape.m, c.shape.n), 0.0f);
  const auto out = there(y);
  kernels::MatMul op{c.w,       {.bf16 = x.as<uint16_t>(), .sums = sums.as<float>()},
                     c.shape.m, out.as<float>(),
                     c.shape.n, false};
  op.w.data = weights.data();
  device.run(op);
  device.finish();
  device.read(std::as_writable_bytes(std::span(y)), out.data());
  return y;
}

TEST_CASE("a device with the library: few rows keep their bits, many are near, and it says so") {
  const StandIn standin;
  const auto exact = kernels::make_cuda_device({});
  const auto library = kernels::make_cuda_device({.library = true});
  CHECK(library->numerics() == exact->numerics() + ", prompts by cuBLASLt 130100");
  const ProductCase many(SourceType::kQ4_0, {257, 32, 64}, false, 67);
  const ProductCase few = many.part(0, 256);
  CHECK(on_device(*library, few) == on_device(*exact, few));
  const std::vector<float> near = on_device(*library, many);
  CHECK(near != on_device(*exact, many));
  check_rounded(near, many.product());
  const auto accounts = [](kernels::Device& device) {
    uint64_t bytes = 0;
    for (const auto& a : device.take_accounts()) bytes += a.cost.bytes();
    return bytes;
  };
  CHECK(accounts(*library) == accounts(*exact) + 2 * 32 * 64 * 2);
}

TEST_CASE("a device whose library is missing is refused with its name") {
  const StandIn missing("/nowhere/libcublasLt.so.13");
  CHECK_THROWS_WITH_AS(kernels::make_cuda_device({.library = true}),
                       doctest::Contains("/nowhere/libcublasLt.so.13"), kernels::DeviceError);
}

}  // namespace
}  // namespace headrace::simt
