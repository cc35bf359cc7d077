#include <nlohmann/json.hpp>

#include "deploy/cli/bench_model.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

using Json = nlohmann::ordered_json;

// So many digits as a person wants to read.
std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
std::string percent(double share) { return fixed(share * 100, 0) + " %"; }

Json operations(const ModelBenchRow& row) {
  Json all = Json::array();
  for (const auto& a : row.accounts)
    all.push_back({{"op", a.op},
                   {"runs", a.runs},
                   {"seconds", a.seconds},
                   {"bytes", a.cost.bytes()},
                   {"flops", a.cost.flops},
                   {"share_of_step", per(a.seconds, row.seconds)}});
  return all;
}

std::string line(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out + "\n";
}

std::string table(const std::vector<std::string>& head) {
  std::string out = line(head) + "|";
  for (size_t i = 0; i < head.size(); i++) out += "---|";
  return out + "\n";
}

// The operations of one row, and what lay between them.
std::string step_table(const ModelBenchRow& row) {
  std::string out = "\nOne step of batch " + std::to_string(row.batch) + " at " +
                    std::to_string(row.context) + " tokens: " + fixed(row.seconds * 1e6, 0) +
                    " µs\n\n";
  out += table({"operation", "runs", "µs", "GB/s", "GOP/s", "of the read limit", "of the step"});
  for (const auto& a : row.accounts) {
    const double bytes = per(static_cast<double>(a.cost.bytes()), a.seconds);
    out += line({a.op, std::to_string(a.runs), fixed(a.seconds * 1e6, 1), fixed(bytes * 1e-9, 1),
                 fixed(per(static_cast<double>(a.cost.flops), a.seconds) * 1e-9, 1),
                 percent(per(bytes, row.read_limit)), percent(per(a.seconds, row.seconds))});
  }
  out += line({"between them", "", fixed(row.outside_share * row.seconds * 1e6, 1), "", "", "",
               percent(row.outside_share)});
  return out;
}

}  // namespace

std::string model_bench_json(const ModelBenchReport& report) {
  Json out{{"model", report.model},
           {"device", report.device},
           {"limits",
            {{"int8_ops_per_second", report.limits.int8_ops_per_second},
             {"f32_flops_per_second", report.limits.f32_flops_per_second},
             {"bf16_flops_per_second", report.limits.bf16_flops_per_second}}},
           {"rows", Json::array()}};
  for (const ModelBenchRow& row : report.rows) {
    const auto bytes = static_cast<double>(row.cost.bytes());
    const auto flops = static_cast<double>(row.cost.flops);
    out["rows"].push_back({{"batch", row.batch},
                           {"prompt", row.prompt},
                           {"context", row.context},
                           {"prefill_tokens_per_second", row.prefill_tokens_per_second},
                           {"decode_tokens_per_second", row.decode_tokens_per_second},
                           {"seconds", row.seconds},
                           {"seconds_p10", row.low},
                           {"seconds_p90", row.high},
                           {"bytes", row.cost.bytes()},
                           {"flops", row.cost.flops},
                           {"bytes_per_second", per(bytes, row.seconds)},
                           {"flops_per_second", per(flops, row.seconds)},
                           {"flops_per_byte", per(flops, bytes)},
                           {"read_limit", row.read_limit},
                           {"saturation", row.memory_share},
                           {"compute_share", row.compute_share},
                           {"outside_share", row.outside_share},
                           {"wall", row.wall()},
                           {"operations", operations(row)}});
  }
  return out.dump();
}

std::string model_bench_markdown(const ModelBenchReport& report, ModelBenchOptions::What what) {
  std::string out = report.model + ", " + report.device + "\n\n";
  out += table({"batch", "prompt", "context", "prefill tok/s", "decode tok/s", "ms (p10-p90)",
                "GB/s", "GOP/s", "FLOP/byte", "read limit", "of it", "of the peak", "wall"});
  for (const ModelBenchRow& row : report.rows) {
    const auto bytes = static_cast<double>(row.cost.bytes());
    const auto flops = static_cast<double>(row.cost.flops);
    const auto shown = [](double v) { return v > 0 ? fixed(v, 1) : std::string(); };
    out += line({std::to_string(row.batch), std::to_string(row.prompt), std::to_string(row.context),
                 shown(row.prefill_tokens_per_second), shown(row.decode_tokens_per_second),
                 fixed(row.seconds * 1e3, 2) + " (" + fixed(row.low * 1e3, 2) + "-" +
                     fixed(row.high * 1e3, 2) + ")",
                 fixed(per(bytes, row.seconds) * 1e-9, 1), fixed(per(flops, row.seconds) * 1e-9, 0),
                 fixed(per(flops, bytes), 1), fixed(row.read_limit * 1e-9, 1),
                 percent(row.memory_share), percent(row.compute_share), row.wall()});
  }
  if (what == ModelBenchOptions::What::kStep)
    for (const ModelBenchRow& row : report.rows) out += step_table(row);
  return out;
}

}  // namespace headrace::cli
