#include <cstdarg>
#include <cstdio>

#include "kernels/bench.h"

namespace headrace::kernels {
namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[512];
  va_list args;
  va_start(args, pattern);
  std::vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  return text;
}

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
double per_second(uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
}

}  // namespace

std::string markdown(const BenchReport& report) {
  std::string out = report.device + "\n\n| limit | at | |\n|---|---|---|\n";
  for (const ReadRate& r : report.limits.read)
    out +=
        format("| read | %.0f MiB | %.1f GB/s |\n", mib(r.working_set), r.bytes_per_second * 1e-9);
  out += format("| int8 | | %.0f GOP/s |\n", report.limits.int8_ops_per_second * 1e-9);
  out += format("| f32 | | %.0f GFLOP/s |\n\n", report.limits.f32_flops_per_second * 1e-9);
  out += "| operation | shape | rows | µs | GB/s | GOP/s | wall | share of it |\n";
  out += "|---|---|---|---|---|---|---|---|\n";
  for (const BenchRow& r : report.rows) {
    const double share = r.memory_share >= r.compute_share ? r.memory_share : r.compute_share;
    out += format("| %s | %s | %d | %.1f | %.1f | %.1f | %s | %.0f %% |\n", r.op.c_str(),
                  r.what.c_str(), r.rows, r.seconds * 1e6,
                  per_second(r.cost.bytes(), r.seconds) * 1e-9,
                  per_second(r.cost.flops, r.seconds) * 1e-9, r.wall(), share * 100);
  }
  return out;
}

std::string json(const BenchReport& report) {
  // Names are ours and hold nothing that JSON escapes.
  std::string out = format("{\"device\": \"%s\", \"limits\": {\"read\": [", report.device.c_str());
  const char* comma = "";
  for (const ReadRate& r : report.limits.read) {
    out += format("%s{\"working_set\": %llu, \"bytes_per_second\": %.6g}", comma,
                  static_cast<unsigned long long>(r.working_set), r.bytes_per_second);
    comma = ", ";
  }
  out += format("], \"int8_ops_per_second\": %.6g, \"f32_flops_per_second\": %.6g}, ",
                report.limits.int8_ops_per_second, report.limits.f32_flops_per_second);
  out += "\"operations\": [";
  comma = "";
  for (const BenchRow& r : report.rows) {
    out += format(
        "%s{\"op\": \"%s\", \"shape\": \"%s\", \"rows\": %d, \"seconds\": %.6g, \"bytes\": %llu, "
        "\"flops\": %llu, \"working_set\": %llu, \"memory_share\": %.4f, \"compute_share\": %.4f}",
        comma, r.op.c_str(), r.what.c_str(), r.rows, r.seconds,
        static_cast<unsigned long long>(r.cost.bytes()),
        static_cast<unsigned long long>(r.cost.flops),
        static_cast<unsigned long long>(r.working_set), r.memory_share, r.compute_share);
    comma = ", ";
  }
  return out + "]}";
}

}  // namespace headrace::kernels
