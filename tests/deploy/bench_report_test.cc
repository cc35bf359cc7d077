#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "deploy/cli/bench_model.h"

namespace headrace::cli {
namespace {

ModelBenchReport report() {
  ModelBenchRow row;
  row.batch = 8;
  row.context = 128;
  row.decode_tokens_per_second = 200;
  row.seconds = 0.040;
  row.low = 0.039;
  row.high = 0.042;
  row.cost = {.weight_bytes = 600'000'000, .flops = 16'000'000'000};
  row.read_limit = 30e9;
  row.memory_share = 0.5;
  row.compute_share = 0.25;
  row.outside_share = 0.05;
  row.accounts = {{"matmul", row.cost, 0.030, 97}};
  return {"some.gguf", "cpu avx2, 2 threads", {}, {row}};
}

TEST_CASE("as JSON: rates follow from bytes and seconds") {
  const auto json = nlohmann::json::parse(model_bench_json(report()));
  const auto row = json["rows"][0];
  CHECK(row["bytes_per_second"] == doctest::Approx(15e9));
  CHECK(row["flops_per_byte"] == doctest::Approx(80.0 / 3));
  CHECK(row["wall"] == "memory");
  CHECK(row["operations"][0]["share_of_step"] == doctest::Approx(0.75));
  CHECK(json["device"] == "cpu avx2, 2 threads");
}

TEST_CASE("as tables: operations only where a step is told apart") {
  using What = ModelBenchOptions::What;
  const std::string decode = model_bench_markdown(report(), What::kDecode);
  CHECK(decode.find("| 8 | 0 | 128 |  | 200.0 | 40.00 (39.00-42.00) | 15.0 | 400 | 26.7 | 30.0 | "
                    "50 % | 25 % | memory |") != std::string::npos);
  CHECK(decode.find("matmul") == std::string::npos);
  const std::string step = model_bench_markdown(report(), What::kStep);
  CHECK(step.find("| matmul | 97 | 30000.0 | 20.0 | 533.3 | 67 % | 75 % |") != std::string::npos);
  CHECK(step.find("| between them |  | 2000.0 |  |  |  | 5 % |") != std::string::npos);
}

TEST_CASE("nothing measured is nothing, not infinite") {
  ModelBenchReport empty = report();
  empty.rows[0] = {};
  const auto json = nlohmann::json::parse(model_bench_json(empty));
  CHECK(json["rows"][0]["bytes_per_second"] == 0);
  CHECK(per(1, 0) == 0);
}

}  // namespace
}  // namespace headrace::cli
