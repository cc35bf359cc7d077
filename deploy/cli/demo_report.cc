#include <cstdio>
#include <nlohmann/json.hpp>

#include "deploy/cli/demo_wall.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

constexpr uint64_t kDemoTiny = uint64_t{64} << 20;  // bytes that some cache holds

using DemoJson = nlohmann::ordered_json;

std::string digits(double value, int behind) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", behind, value);
  return text;
}
std::string share(double part) { return digits(part * 100, 0) + " %"; }
std::string milli(double seconds) {
  return digits(seconds * 1e3, seconds < 1e-3 ? 4 : seconds < 0.1 ? 2 : 0);
}
std::string mega(uint64_t bytes) { return digits(static_cast<double>(bytes) * 1e-6, 1); }

using Cells = std::vector<std::string>;

// Columns as wide as their widest cell; the first to the left, numbers to the right.
std::string columns(const std::vector<Cells>& lines) {
  const auto width = [](const std::string& cell) {
    size_t n = 0;
    for (const char c : cell) n += (c & 0xc0) != 0x80;
    return n;
  };
  std::vector<size_t> widest(lines[0].size());
  for (const Cells& line : lines)
    for (size_t i = 0; i < line.size(); i++) widest[i] = std::max(widest[i], width(line[i]));
  std::string out;
  for (const Cells& line : lines) {
    out += "  ";
    for (size_t i = 0; i < line.size(); i++) {
      const std::string fill(widest[i] - width(line[i]), ' ');
      out += i == 0 ? line[i] + fill : "  " + fill + line[i];
    }
    out += "\n";
  }
  return out;
}

const Cells kDemoHead = {"",          "MB weights",    "KV",      "predicted ms",
                         "measured",  "p10-p90",       "ratio",   "tok/s",
                         "FLOP/byte", "of read limit", "of peak", "nearest wall"};

Cells cells_of(const std::string& what, const DemoRow& row) {
  return {what,
          mega(row.weight_bytes()),
          mega(row.cost.kv_bytes),
          milli(row.predicted),
          milli(row.seconds),
          milli(row.low) + "-" + milli(row.high),
          digits(row.seconds / row.predicted, 2) + "x",
          digits(row.tokens_per_second(), 1),
          digits(row.flops_per_byte(), 1),
          share(row.memory_share),
          share(row.compute_share),
          row.wall()};
}

std::string shape_line(const DemoRow& row) {
  return row.weights + ", " + std::to_string(row.layers) + " layers; memory gives " +
         digits(row.read_limit * 1e-9, 1) + " GB/s";
}

std::string phases_text(const DemoReport& r) {
  std::vector<Cells> lines{kDemoHead};
  const std::string prompt = std::to_string(r.phases[0].prompt);
  lines.push_back(cells_of("prefill of " + prompt, r.phases[0]));
  lines.push_back(cells_of("decode behind it", r.phases[1]));
  return "1. Prefill against decode, one prompt of " + prompt + " tokens (" +
         shape_line(r.phases[0]) +
         ")\n   A prompt's tokens share each weight that is read; a decoded token has it alone.\n" +
         columns(lines);
}

std::string formats_text(const DemoReport& r) {
  std::vector<Cells> lines{kDemoHead};
  for (const DemoRow& row : r.formats) lines.push_back(cells_of(row.weights, row));
  const DemoRow &wide = r.formats.front(), &narrow = r.formats.back();
  const auto times = [](double a, double b) { return digits(a / b, 1) + "x"; };
  return "\n2. Weights of fewer bytes, decode (" + std::to_string(wide.layers) + " of the " +
         std::to_string(r.shape.layers) +
         " layers, so that bf16 takes little memory)\n   Bytes fall " +
         times(static_cast<double>(wide.cost.bytes()), static_cast<double>(narrow.cost.bytes())) +
         " from bf16 to w4: the step is predicted to be " +
         times(wide.predicted, narrow.predicted) + " faster, and is " +
         times(wide.seconds, narrow.seconds) + ".\n" + columns(lines);
}

std::string batches_text(const DemoReport& r) {
  std::vector<Cells> lines{kDemoHead};
  for (const DemoRow& row : r.batches)
    lines.push_back(cells_of("batch " + std::to_string(row.batch), row));
  const DemoRow &one = r.batches.front(), &most = r.batches.back();
  return "\n3. More sequences a step (" + shape_line(one) +
         ")\n   The same weight bytes for all of them: " + std::to_string(most.batch) +
         " sequences are predicted to take " + digits(most.predicted / one.predicted, 2) +
         "x the time of one, and take " + digits(most.seconds / one.seconds, 2) + "x.\n" +
         columns(lines);
}

std::string contexts_text(const DemoReport& r) {
  std::vector<Cells> lines{kDemoHead};
  for (const DemoRow& row : r.contexts)
    lines.push_back(cells_of("context " + std::to_string(row.context), row));
  return "\n4. Longer context, batch 1 (" + shape_line(r.contexts[0]) +
         ")\n   Each token back adds its KV, " +
         human_bytes(static_cast<double>(r.kv_token_bytes)) + ", to what a step reads: predicted " +
         digits(r.slope_predicted * 1e6, 3) + " us a token (KV bytes / read limit), measured " +
         digits(r.slope * 1e6, 3) + ", " + digits(r.slope / r.slope_predicted, 2) + "x.\n" +
         columns(lines);
}

std::string mix_line(const DemoMix& mix) {
  const auto range = [](uint32_t least, uint32_t most) {
    return std::to_string(least) + (least == most ? "" : "-" + std::to_string(most));
  };
  return std::to_string(mix.count) + " requests, prompts of " +
         range(mix.prompt_min, mix.prompt_max) + " tokens, answers of " +
         range(mix.answer_min, mix.answer_max);
}

std::string rooms_text(const DemoReport& r) {
  std::vector<Cells> lines{{"", "admitted: predicted", "counted", "of predicted",
                            "waste: predicted", "counted", "steps", "preempted"}};
  for (const DemoServingRow& row : r.rooms)
    lines.push_back({row.way, digits(row.predicted.admitted, 1), digits(row.measured.admitted, 1),
                     digits(row.measured.admitted / row.predicted.admitted, 2) + "x",
                     share(row.predicted.waste), share(row.measured.waste),
                     std::to_string(row.measured.steps), std::to_string(row.measured.preempted)});
  const uint64_t tokens = uint64_t{r.room.blocks} * kDemoServingBlock;
  return "\n5. Room for KV: whole contexts reserved, or pages of " +
         std::to_string(kDemoServingBlock) + " tokens (" + mix_line(r.room_mix) + ")\n   KV for " +
         std::to_string(tokens) + " tokens, " +
         human_bytes(static_cast<double>(tokens * r.kv_token_bytes)) + " of this model, context " +
         std::to_string(r.room.context) +
         ". Counted, not timed, while requests wait: the worker's plan() and block\n   pool serve "
         "them both ways. Predicted from the lengths alone.\n" +
         columns(lines);
}

std::string orders_text(const DemoReport& r) {
  std::vector<Cells> lines{{"", "idle: predicted", "counted", "steps: predicted", "counted",
                            "of predicted", "tokens a step"}};
  for (const DemoServingRow& row : r.orders) {
    const auto steps = static_cast<double>(row.measured.steps);
    lines.push_back({row.way, share(row.predicted.idle), share(row.measured.idle),
                     std::to_string(row.predicted.steps), std::to_string(row.measured.steps),
                     digits(steps / static_cast<double>(row.predicted.steps), 2) + "x",
                     digits(static_cast<double>(row.measured.tokens) / steps, 1)});
  }
  return "\n6. Batches that wait for their last answer, or are filled up at each step (" +
         mix_line(r.batch_mix) + ")\n   " + std::to_string(r.batch.slots) +
         " at a time; idle is the share of their places that makes no token. Counted, not timed, "
         "by "
         "the worker's plan().\n   Predicted from the lengths: the longest answer of each batch, "
         "or "
         "each answer in the place that is free first.\n" +
         columns(lines);
}

std::string walls_line(const DemoReport& r) {
  const DemoRow &prefill = r.phases[0], &decode = r.phases[1];
  const double peak = product_peak(r.limits, true);
  return "\nThe walls of this machine: memory gives " + digits(decode.read_limit * 1e-9, 1) +
         " GB/s and the processor " + digits(peak * 1e-9, 0) + " GOP/s (int8), so below " +
         digits(peak / decode.read_limit, 0) + " FLOP/byte memory is in the way: decode (" +
         digits(decode.flops_per_byte(), 1) + ") stands nearest the " + decode.wall() +
         " wall, at " + share(std::max(decode.memory_share, decode.compute_share)) +
         " of it, prefill (" + digits(prefill.flops_per_byte(), 0) + ") nearest the " +
         prefill.wall() + " wall, at " +
         share(std::max(prefill.memory_share, prefill.compute_share)) + ".\n";
}

DemoJson rows_json(const std::vector<DemoRow>& rows) {
  DemoJson all = DemoJson::array();
  for (const DemoRow& row : rows)
    all.push_back({{"weights", row.weights},
                   {"layers", row.layers},
                   {"batch", row.batch},
                   {"prompt", row.prompt},
                   {"context", row.context},
                   {"runs", row.runs},
                   {"predicted_seconds", row.predicted},
                   {"seconds", row.seconds},
                   {"seconds_p10", row.low},
                   {"seconds_p90", row.high},
                   {"tokens_per_second", row.tokens_per_second()},
                   {"weight_bytes", row.weight_bytes()},
                   {"kv_bytes", row.cost.kv_bytes},
                   {"bytes", row.cost.bytes()},
                   {"flops", row.cost.flops},
                   {"flops_per_byte", row.flops_per_byte()},
                   {"read_limit", row.read_limit},
                   {"saturation", row.memory_share},
                   {"compute_share", row.compute_share},
                   {"wall", row.wall()}});
  return all;
}

DemoJson serving_json(const std::vector<DemoServingRow>& rows) {
  const auto outcome = [](const DemoOutcome& o) {
    return DemoJson{{"steps", o.steps},       {"tokens", o.tokens}, {"idle", o.idle},
                    {"admitted", o.admitted}, {"waste", o.waste},   {"preempted", o.preempted}};
  };
  DemoJson all = DemoJson::array();
  for (const DemoServingRow& row : rows)
    all.push_back({{"way", row.way},
                   {"predicted", outcome(row.predicted)},
                   {"counted", outcome(row.measured)}});
  return all;
}

}  // namespace

std::string demo_json(const DemoReport& r) {
  DemoJson out{
      {"device", r.device},
      {"threads", r.threads},
      {"weights", r.shape.weights()},
      {"limits",
       {{"read_bytes_per_second", r.phases[1].read_limit},
        {"int8_ops_per_second", r.limits.int8_ops_per_second},
        {"f32_flops_per_second", r.limits.f32_flops_per_second}}},
      {"kv_token_bytes", r.kv_token_bytes},
      {"phases", rows_json(r.phases)},
      {"formats", rows_json(r.formats)},
      {"batches", rows_json(r.batches)},
      {"contexts", rows_json(r.contexts)},
      {"seconds_a_context_token", {{"predicted", r.slope_predicted}, {"measured", r.slope}}},
      {"rooms", serving_json(r.rooms)},
      {"orders", serving_json(r.orders)},
      {"seconds", r.wall_seconds}};
  return out.dump();
}

std::string demo_text(const DemoReport& r) {
  const std::string tiny = r.shape.matrix_bytes() < kDemoTiny
                               ? "This model is tiny: its times say nothing of memory.\n"
                               : "";
  return "The memory wall on this machine: " + r.device + ", " +
         digits(static_cast<double>(r.shape.weights()) * 1e-9, 2) +
         "e9 made-up weights. Predicted: max(bytes / read limit, operations / peak),\nuncorrected; "
         "the limits were measured in this run. " +
         digits(r.wall_seconds, 0) + " s in all.\n" + tiny + "\n" + phases_text(r) +
         formats_text(r) + batches_text(r) + contexts_text(r) + rooms_text(r) + orders_text(r) +
         walls_line(r);
}

}  // namespace headrace::cli
