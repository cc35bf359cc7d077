// gpu_measure PART: one part of tests/gpu/run that needs the GPU's memory to itself. One row of
// JSON a line on stdout; what went wrong on stderr, and status 1.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "tests/gpu/bench.h"
#include "tests/gpu/parts.h"

namespace {

struct Options {
  std::string part;
  int ordinal = 0;
  bool tiny = false;
  double seconds = 10;
  double each = 0.1;
  std::string model;
};

void run(const Options& o) {
  using namespace headrace::gpu;
  const auto bench = [&] { return Bench(o.ordinal, Scale{o.tiny, o.each}); };
  const std::map<std::string, std::function<void()>> parts{
      {"device", [&] { describe_device(o.ordinal); }},
      {"limits", [&] { measure_limits(o.ordinal, o.tiny, o.seconds); }},
      {"wrappers", [&] { run_wrappers(bench()); }},
      {"products", [&] { measure_products(bench()); }},
      {"attention", [&] { measure_attention(bench()); }},
      {"rows", [&] { measure_rows(bench()); }},
      {"steps", [&] { measure_steps(o.ordinal, o.tiny, o.model, o.each); }}};
  const auto part = parts.find(o.part);
  if (part == parts.end()) throw std::runtime_error("no part " + o.part);
  part->second();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Measures one part of a GPU");
  Options options;
  program
      .add_option("part", options.part,
                  "device, limits, wrappers, products, attention, rows or steps")
      ->required();
  program.add_option("--device", options.ordinal, "As the driver numbers them");
  program.add_flag("--tiny", options.tiny, "Shapes for an emulator");
  program.add_option("--seconds", options.seconds, "limits: about so long")
      ->check(CLI::Range(0.01, 600.0));
  program.add_option("--each", options.each, "Seconds for each row")->check(CLI::Range(0.0, 60.0));
  program.add_option("--model", options.model, "steps: GGUF file");
  CLI11_PARSE(program, argc, argv);
  try {
    run(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_measure: %s\n", e.what());
    return 1;
  }
  return 0;
}
