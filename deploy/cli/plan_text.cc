#include <algorithm>
#include <cmath>
#include <cstdio>

#include "deploy/cli/output.h"
#include "deploy/cli/plan_report.h"

namespace headrace::cli {

namespace {

using kernels::KvType;
using Cells = std::vector<std::string>;

// Columns as wide as what is in them; the first to the left, the others to the right.
std::string table(const std::vector<Cells>& rows) {
  std::vector<size_t> width;
  for (const Cells& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(width[i] - row[i].size(), ' ');
      line += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

// Three digits at least: "0.42", "104", "26148".
std::string number(double n) {
  const int decimals = n >= 100 ? 0 : n >= 10 ? 1 : 2;
  return format("%.*f", decimals, n);
}

std::string time(double seconds) {
  if (seconds < 1e-3) return number(seconds * 1e6) + " us";
  return seconds < 1 ? number(seconds * 1e3) + " ms" : number(seconds) + " s";
}

std::string length(int32_t tokens) {
  return tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "K" : std::to_string(tokens);
}

std::string bytes(uint64_t n) { return human_bytes(static_cast<double>(n)); }

// Types that take the same bytes are one row.
constexpr KvType kKvSizes[] = {KvType::kF16, KvType::kFp8};
std::string kv_name(KvType type) { return kernels::scaled(type) ? "fp8/int8" : "f16/bf16"; }

std::string format_name(const PlanCase& at) {
  return std::string(name(at.format.weights)) + " weights, " + kv_name(at.format.kv) + " KV";
}

std::string head_text(const PlanRequest& request, const PlanTime& step) {
  const PlanModel& m = request.model;
  const PlanMachine& gpu = request.base.machine;
  const auto source = [&](bool given) {
    return given ? "given" : gpu.measured ? "measured" : "data sheet x what an H200 reached";
  };
  std::string out = format("%s: %d layers of %d, %d heads (%d of keys) of %d, %d tokens\n",
                           m.name.substr(0, 80).c_str(), m.layers, m.dim, m.heads, m.kv_heads,
                           m.head_dim, m.vocab);
  out += format("%s: reads %.3g TB/s (%s), computes %.4g TFLOP/s (%s), %.4g GB\n",
                request.gpu.c_str(), gpu.read / 1e12, source(gpu.read_given), gpu.flops / 1e12,
                source(gpu.flops_given), gpu.memory / 1e9);
  out += "Floor: bytes / bandwidth or operations / peak, the larger; nothing is faster here.\n";
  out += format(
      "Predicted: one operation after the other at %.3g %% of that, %.3g us for each of %u "
      "launches;\nan assumption, not verified on hardware.\n",
      gpu.share * 100, gpu.gap * 1e6, step.launches);
  return out;
}

std::string memory_text(const PlanRequest& request) {
  Cells titles = {"weights", "KV", "resident", "KV/token", "tokens"};
  for (const int32_t context : request.contexts()) titles.push_back("x " + length(context));
  titles.push_back("computes from");
  titles.push_back("at " + length(request.base.context));
  std::vector<Cells> rows = {titles};
  for (const PlanWeights weights : request.weights())
    for (const KvType kv : kKvSizes) {
      PlanCase at = request.with(weights, kv);
      const PlanRoom room = plan_room(request.model, at);
      Cells row = {name(weights), kv_name(kv), bytes(room.resident()), bytes(room.kv_token_bytes),
                   room.blocks > 0 ? std::to_string(room.tokens()) : "does not fit"};
      for (const int32_t context : request.contexts())
        row.push_back(std::to_string(room.sequences(context)));
      for (const int32_t context : {1, request.base.context}) {
        at.context = context;
        const uint32_t batch = plan_compute_batch(request.model, at);
        row.push_back(batch > 0 ? std::to_string(batch) : "never");
      }
      rows.push_back(std::move(row));
    }
  return format(
             "\nRoom with %.3g GB in reserve: tokens of KV, sequences of each context; the batch "
             "from which a step\ncomputes longer than it reads, at short contexts and at %s\n",
             request.base.machine.reserve / 1e9, length(request.base.context).c_str()) +
         table(rows);
}

std::string decode_text(const PlanRequest& request) {
  Cells titles = {"batch"};
  for (const int32_t context : request.contexts()) titles.push_back(length(context));
  std::vector<Cells> rows = {titles};
  for (const PlanRow& row : plan_rows(request, request.base)) {
    if (row.at.context == request.contexts().front())
      rows.push_back({std::to_string(row.at.batch)});
    const std::string pair = number(row.per_second()) + " / " + number(row.predicted());
    rows.back().push_back(!row.fits                    ? "does not fit"
                          : row.wall == Wall::kCompute ? pair + " c"
                                                       : pair);
  }
  return "\nDecode with " + format_name(request.base) +
         ", by context: tokens per second at the floor / predicted (c: compute-bound)\n" +
         table(rows);
}

std::string formats_text(const PlanRequest& request) {
  Cells titles = {"weights", "KV", "bytes at 1"};
  for (const int32_t batch : kPlanBatches) titles.push_back(std::to_string(batch));
  std::vector<Cells> rows = {titles};
  for (const PlanWeights weights : request.weights())
    for (const KvType kv : kKvSizes) {
      PlanCase at = request.with(weights, kv);
      Cells row = {name(weights), kv_name(kv)};
      for (const int32_t batch : kPlanBatches) {
        at.batch = batch;
        const PlanTime step = plan_decode(request.model, at);
        if (batch == 1) row.push_back(bytes(step.bytes()));
        row.push_back(plan_room(request.model, at).holds(batch, at.context)
                          ? number(batch / step.floor)
                          : "-");
      }
      rows.push_back(std::move(row));
    }
  return "\nEvery format at a context of " + length(request.base.context) +
         ", by batch: tokens per second at the floor\n" + table(rows);
}

std::string ratios_text(const PlanRequest& request) {
  std::vector<Cells> rows = {{"decode batch", "prefill", "decode", "prefill : decode workers"}};
  PlanCase at = request.base;
  for (const int32_t batch : kPlanBatches) {
    at.batch = batch;
    const PlanRatio r = plan_ratio(request.model, at);
    const double ratio = r.ratio();
    rows.push_back({std::to_string(batch), time(r.prefill), time(r.decode),
                    !r.fits     ? "does not fit"
                    : ratio < 1 ? "1 : " + number(1 / ratio)
                                : number(ratio) + " : 1"});
  }
  return format(
             "\nWorkers of each kind for prompts of %d and answers of %d tokens: time of each a "
             "request, predicted\n",
             at.prompt, at.answer) +
         table(rows);
}

// One cell of a link: the wire, and the first token over it.
std::string link_cell(const PlanHandOff& h) {
  const char* mark = h.loses() ? " !" : h.first_token <= h.local ? " +" : "";
  return time(h.wire) + ", " + time(h.first_token) + mark;
}

std::string hand_offs_text(const PlanRequest& request) {
  Cells titles = {"prompt", "KV", "prefill", "local"};
  for (const PlanLink& link : request.links) titles.push_back(link.name);
  titles.push_back("rate to keep up");
  std::vector<Cells> rows = {titles};
  for (const int32_t prompt : request.prompts()) {
    const auto over = plan_over_links(request, prompt);
    const PlanHandOff& any = over.front();
    const double needed =
        8 * static_cast<double>(any.bytes) / any.prefill / request.base.machine.share;
    Cells row = {length(prompt), bytes(any.bytes), time(any.prefill), time(any.local)};
    for (const PlanHandOff& h : over) row.push_back(link_cell(h));
    row.push_back(number(needed / 1e9) + " Gb/s");
    rows.push_back(std::move(row));
  }
  return "\nHand-off with " + format_name(request.base) +
         ": time on the link, time to the first token over it, predicted,\nbeside the prefill "
         "alone "
         "and `local`: the first token if the decode worker computes the\n" +
         format("prompt between the steps of its answers (%d).\n", request.base.batch) +
         "+: over the link it is there sooner. !: disaggregation loses; it is there later, and the "
         "link is\nslower than the prefill worker, which waits for it.\n" +
         table(rows);
}

std::string remedies_text(const PlanRequest& request) {
  if (request.remedies.empty()) return {};
  const PlanOutcome before = plan_outcome(request.model, request.base);
  const auto change = [](const std::string& a, const std::string& b) { return a + " -> " + b; };
  std::vector<Cells> rows = {
      {"what if", "step", "tok/s at the floor", "tok/s predicted", "gain", "prefill", "wall"}};
  for (const PlanRemedy& r : plan_remedies(request)) {
    const PlanOutcome& after = r.after;
    rows.push_back({r.name, change(bytes(before.step.bytes()), bytes(after.step.bytes())),
                    change(number(before.per_second), number(after.per_second)),
                    change(number(before.predicted), number(after.predicted)),
                    number(after.predicted / before.predicted) + "x",
                    change(time(before.prefill), time(after.prefill)),
                    change(name(before.wall()), name(after.wall()))});
  }
  return format("\nWhat if, from batch %d at a context of %s with ", request.base.batch,
                length(request.base.context).c_str()) +
         format_name(request.base) + "\n" + table(rows);
}

}  // namespace

std::string plan_text(const PlanRequest& request) {
  const PlanCase& base = request.base;
  std::string out = head_text(request, plan_decode(request.model, base)) + memory_text(request);
  const PlanRoom room = plan_room(request.model, base);
  if (room.sequences(request.contexts().front()) == 0) {
    out += "\n" + format_name(base) + ": does not fit, " + bytes(room.resident()) + " of " +
           human_bytes(base.machine.memory - base.machine.reserve) + "\n";
    return out + formats_text(request) + remedies_text(request);
  }
  return out + decode_text(request) + formats_text(request) + ratios_text(request) +
         hand_offs_text(request) + remedies_text(request);
}

}  // namespace headrace::cli
