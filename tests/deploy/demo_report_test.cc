#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "deploy/cli/demo_wall.h"

namespace headrace::cli {
namespace {

DemoRow row_of(uint32_t prompt, uint64_t weight_bytes, double memory, double compute) {
  DemoRow row;
  row.weights = "w4";
  row.layers = 16;
  row.prompt = prompt;
  row.context = 513;
  row.runs = 9;
  row.seconds = 0.05;
  row.low = 0.04;
  row.high = 0.06;
  row.predicted = 0.04;
  row.cost = {.weight_bytes = weight_bytes + 100,
              .kv_bytes = 5'000'000,
              .activation_bytes = 0,
              .flops = 2 * weight_bytes};
  row.looked_up = 100;
  row.read_limit = 20e9;
  row.memory_share = memory;
  row.compute_share = compute;
  return row;
}

DemoReport report() {
  DemoReport r;
  r.device = "cpu amx, 2 threads";
  r.threads = 2;
  r.limits.int8_ops_per_second = 1e12;
  r.kv_token_bytes = 32768;
  r.phases = {row_of(512, 600'000'000, 0.03, 0.7), row_of(0, 600'000'000, 0.8, 0.1)};
  r.formats = {row_of(0, 900'000'000, 0.8, 0.1), row_of(0, 300'000'000, 0.8, 0.1)};
  r.batches = r.contexts = r.formats;
  r.slope_predicted = 1e-6;
  r.slope = 1.25e-6;
  serve_demos(r);
  return r;
}

TEST_CASE("as text: a section each, predictions beside measurements, the walls at the end") {
  const std::string text = demo_text(report());
  for (const char* part : {"\n1. Prefill", "\n2. Weights", "\n3. More sequences", "\n4. Longer",
                           "\n5. Room for KV", "\n6. Batches"})
    CHECK_MESSAGE(text.find(part) != text.npos, part);
  CHECK(text.find("prefill of 512") != text.npos);
  CHECK(text.find("1.25x") != text.npos);  // 50 of 40 ms; and the slope
  CHECK(text.find("contiguous") != text.npos);
  CHECK(text.find("This model is tiny") == text.npos);
  const size_t last = text.find("\nThe walls of this machine: memory gives 20.0 GB/s");
  REQUIRE(last != text.npos);
  CHECK(text.find("nearest the memory wall, at 80 %", last) != text.npos);
  CHECK(text.find("nearest the compute wall, at 70 %", last) != text.npos);
  DemoReport tiny = report();
  tiny.shape.layers = 1;
  tiny.shape.dim = tiny.shape.ffn = tiny.shape.vocab = 32;
  CHECK(demo_text(tiny).find("This model is tiny") != std::string::npos);
}

TEST_CASE("as JSON") {
  const auto json = nlohmann::json::parse(demo_json(report()));
  CHECK(json["phases"].size() == 2);
  CHECK(json["phases"][0]["wall"] == "compute");
  CHECK(json["phases"][1]["wall"] == "memory");
  CHECK(json["phases"][1]["weight_bytes"] == 600'000'000);
  CHECK(json["phases"][1]["predicted_seconds"] == 0.04);
  CHECK(json["seconds_a_context_token"]["measured"] == 1.25e-6);
  CHECK(json["rooms"][1]["way"] == "pages");
  CHECK(json["orders"][0]["counted"]["idle"] > 0);
}

}  // namespace
}  // namespace headrace::cli
