#include "worker/host_limits.h"

#include <doctest/doctest.h>

#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <thread>

namespace headrace::worker {
namespace {

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("headrace-limits-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

kernels::CpuLimits measured(double scale) {
  return {.read = {{1 << 20, 8e10 * scale}, {1 << 28, 2e10 * scale}},
          .int8_ops_per_second = 5e11 * scale,
          .f32_flops_per_second = 1e11 * scale};
}

const HostLimitsKey kKey{.host = "here", .path = kernels::CpuPath::kAvx2, .threads = 2};

TEST_CASE("limits are measured once a host, path and number of threads") {
  const Folder folder;
  OsFiles files;
  int runs = 0;
  const auto measure = [&] { return measured(++runs); };
  const auto first = host_limits(files, folder.path() + "/state", kKey, measure);
  REQUIRE_MESSAGE(first.has_value(), (first ? "" : first.error().message));
  CHECK(first->read == std::vector<ReadPoint>{{1 << 20, 8e10}, {1 << 28, 2e10}});
  CHECK(first->int8_ops_per_second == 5e11);
  CHECK(*host_limits(files, folder.path() + "/state", kKey, measure) == *first);
  CHECK(runs == 1);
  HostLimitsKey other = kKey;
  other.threads = 4;
  CHECK(host_limits(files, folder.path() + "/state", other, measure)->int8_ops_per_second == 1e12);
  other = kKey;
  other.host = "elsewhere";
  CHECK(host_limits(files, folder.path() + "/state", other, measure)->int8_ops_per_second ==
        1.5e12);
  CHECK(*host_limits(files, folder.path() + "/state", kKey, measure) == *first);
  CHECK(runs == 3);
}

TEST_CASE("two at once: one measures, the other waits for it") {
  const Folder folder;
  std::atomic<int> runs = 0, inside = 0;
  const auto measure = [&] {
    CHECK(++inside == 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    --inside;
    return measured(++runs);
  };
  const auto ask = [&] {
    OsFiles files;
    CHECK(host_limits(files, folder.path(), kKey, measure)->int8_ops_per_second == 5e11);
  };
  std::thread a(ask), b(ask);
  a.join();
  b.join();
  CHECK(runs == 1);
}

TEST_CASE("a strange file is measured anew and replaced") {
  OsFiles files;
  for (const std::string text :
       {"", "{", "[]", R"({"version":1,"entries":7})", R"({"version":2,"entries":[]})",
        R"({"version":1,"entries":[7,{"host":"here","path":"avx2","threads":2}]})",
        R"({"version":1,"entries":[{"host":"here","path":"avx2","threads":2,"read":[[2,1],[1,1]],
            "int8_ops_per_second":1,"f32_flops_per_second":1}]})",
        R"({"version":1,"entries":[{"host":"here","path":"avx2","threads":2,"read":[],
            "int8_ops_per_second":-1,"f32_flops_per_second":1}]})"}) {
    CAPTURE(text);
    const Folder folder;
    REQUIRE(files.make_directory(folder.path()).ok());
    REQUIRE(files.write(folder.path() + "/host-limits.json", std::as_bytes(std::span(text))).ok());
    int runs = 0;
    const auto measure = [&] { return measured(++runs); };
    CHECK(host_limits(files, folder.path(), kKey, measure)->f32_flops_per_second == 1e11);
    CHECK(host_limits(files, folder.path(), kKey, measure)->f32_flops_per_second == 1e11);
    CHECK(runs == 1);
  }
}

const kernels::GpuLimits kGpu{.read = {{1 << 20, 5e12}, {1 << 28, 3e12}},
                              .bf16_flops_per_second = 6e14,
                              .to_device_bytes_per_second = 5e10,
                              .to_host_bytes_per_second = 4e10,
                              .launch_seconds = 2e-6,
                              .graph_seconds = 1e-6};

TEST_CASE("a GPU's limits are measured once, beside the processor's") {
  const Folder folder;
  OsFiles files;
  const GpuLimitsKey key{.host = "here", .gpu = "0123"};
  CHECK_FALSE(kept_gpu_limits(files, folder.path(), key));
  int runs = 0;
  const auto measure = [&] {
    kernels::GpuLimits limits = kGpu;
    limits.graph_seconds *= ++runs;
    return limits;
  };
  CHECK(*gpu_limits(files, folder.path(), key, measure) == kGpu);
  CHECK(host_limits(files, folder.path(), kKey, [] { return measured(1); })->read.size() == 2);
  CHECK(*gpu_limits(files, folder.path(), key, measure) == kGpu);
  CHECK(*kept_gpu_limits(files, folder.path(), key) == kGpu);
  CHECK(runs == 1);
  CHECK(gpu_limits(files, folder.path(), {.host = "here", .gpu = "4567"}, measure)->graph_seconds ==
        2e-6);
  CHECK(
      gpu_limits(files, folder.path(), {.host = "there", .gpu = "0123"}, measure)->graph_seconds ==
      3e-6);
  CHECK(*kept_gpu_limits(files, folder.path(), key) == kGpu);
  CHECK_FALSE(kept_gpu_limits(files, folder.path(), {.host = "here", .gpu = "89ab"}));
}

TEST_CASE("a GPU that cannot be measured leaves nothing behind, nor the folder locked") {
  const Folder folder;
  OsFiles files;
  const GpuLimitsKey key{.host = "here", .gpu = "0123"};
  CHECK_THROWS_AS(
      (void)gpu_limits(files, folder.path(), key,
                       []() -> kernels::GpuLimits { throw kernels::DeviceError("gone"); }),
      kernels::DeviceError);
  CHECK_FALSE(kept_gpu_limits(files, folder.path(), key));
  CHECK(*gpu_limits(files, folder.path(), key, [] { return kGpu; }) == kGpu);
}

TEST_CASE("the model of time takes a GPU's reads and its products") {
  const MachineLimits limits = machine_limits(kGpu);
  CHECK(limits.read == std::vector<ReadPoint>{{1 << 20, 5e12}, {1 << 28, 3e12}});
  CHECK(limits.bf16_flops_per_second == 6e14);
  CHECK(limits.int8_ops_per_second == 0);
  CHECK(product_peak(limits, true) == 6e14);
  CHECK(attention_peak(limits) == 6e14);
}

TEST_CASE("a folder that cannot be made is an error") {
  OsFiles files;
  const auto none = host_limits(files, "/dev/null/state", kKey, [] { return measured(1); });
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().message.find("/dev/null/state") != std::string::npos);
}

TEST_CASE("a host has one name") {
  CHECK(host_identity().size() > 3);
  CHECK(host_identity() == host_identity());
}

}  // namespace
}  // namespace headrace::worker
