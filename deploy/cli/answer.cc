#include "deploy/cli/answer.h"

#include <cstdio>

#include "deploy/cli/options.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

using coordinator::Chunk;
using coordinator::Ended;

std::optional<Figures> figures(const Answer& answer, const ModelCost& cost,
                               const MachineLimits& limits) {
  const auto& timing = answer.ended.timing;
  const double seconds = timing.total - timing.first_token;
  if (answer.ids.size() < 2 || seconds <= 0) return std::nullopt;
  const double steps = static_cast<double>(answer.ids.size() - 1);
  const double prompt = answer.ended.usage.prompt_tokens;
  // Step i reads the weights and the KV of the prompt and of the i tokens before.
  const double context = prompt + (steps + 1) / 2;
  const double bytes =
      static_cast<double>(cost.weight_bytes) + context * static_cast<double>(cost.kv_token_bytes);
  Figures f;
  f.tokens_per_second = steps / seconds;
  f.bytes_per_second = f.tokens_per_second * bytes;
  f.limit = read_limit(limits, static_cast<uint64_t>(bytes));
  return f;
}

double ceiling_tokens_per_second(const MachineLimits& limits, const ModelCost& cost) {
  const double read = read_limit(limits, cost.weight_bytes);
  return cost.weight_bytes > 0 ? read / static_cast<double>(cost.weight_bytes) : 0;
}

std::string summary(const Answer& answer, const std::optional<Figures>& f) {
  const size_t n = answer.ids.size();
  std::string line = std::to_string(n) + (n == 1 ? " token" : " tokens");
  char text[96];
  if (f) {
    std::snprintf(text, sizeof text, ", %.1f tok/s, %.2f GB/s", f->tokens_per_second,
                  f->bytes_per_second / 1e9);
    line += text;
    if (f->limit > 0) {
      std::snprintf(text, sizeof text, ", %.0f %% of the measured %.1f GB/s", f->share() * 100,
                    f->limit / 1e9);
      line += text;
    }
  }
  if (n > 0) {
    std::snprintf(text, sizeof text, "; first token after %.0f ms",
                  answer.ended.timing.first_token * 1e3);
    line += text;
  }
  return line;
}

std::string why_ended(const Answer& answer, const Asked& asked) {
  const auto& usage = answer.ended.usage;
  if (answer.ended.finish == Finish::kLength) {
    if (asked.max_tokens && usage.completion_tokens >= *asked.max_tokens)
      return "ended at --max-tokens " + std::to_string(*asked.max_tokens);
    const uint32_t all = usage.prompt_tokens + usage.completion_tokens;
    if (asked.resumed)
      return "ended at the --max-tokens it was asked with, or as the context is full: prompt and "
             "answer have " +
             std::to_string(all) + " tokens";
    return "ended as the context is full: prompt and answer have " + std::to_string(all) +
           " tokens";
  }
  if (answer.text.find_first_not_of(" \t\r\n") != std::string::npos || asked.resumed) return {};
  const std::string empty = asked.stops
                                ? "the answer is empty: a stop or the model's own end came first"
                                : "the answer is empty: the model ended at once";
  return empty + (asked.plain && asked.can_chat
                      ? "; it is made to chat: try --chat, which uses its chat template"
                      : "");
}

bool AnswerPrinter::on(const Chunk& chunk) {
  answer_.ids.insert(answer_.ids.end(), chunk.ids.begin(), chunk.ids.end());
  answer_.text += chunk.text;
  answer_.logprobs.insert(answer_.logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  if (json_ || chunk.text.empty()) return true;
  std::fwrite(chunk.text.data(), 1, chunk.text.size(), stdout);
  std::fflush(stdout);
  return stdout_works();
}

namespace {

// Of each token: what it got, and the alternatives.
nlohmann::ordered_json logprobs_json(const Answer& answer) {
  auto list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < answer.logprobs.size() && i < answer.ids.size(); ++i) {
    auto top = nlohmann::ordered_json::array();
    for (const TokenLogprob& t : answer.logprobs[i].top)
      top.push_back({{"id", t.id}, {"logprob", t.logprob}});
    list.push_back(
        {{"id", answer.ids[i]}, {"logprob", answer.logprobs[i].chosen}, {"top", std::move(top)}});
  }
  return list;
}

nlohmann::ordered_json to_json(const Answer& answer, const std::optional<Figures>& f,
                               bool kv_digest) {
  const Ended& ended = answer.ended;
  nlohmann::ordered_json timing = {{"queue", ended.timing.queue},
                                   {"first_token", ended.timing.first_token},
                                   {"total", ended.timing.total}};
  if (f) {
    timing["tokens_per_second"] = f->tokens_per_second;
    timing["bytes_per_second"] = f->bytes_per_second;
    timing["limit_bytes_per_second"] = f->limit;
  }
  nlohmann::ordered_json object = {{"request_id", hex(answer.request)},
                                   {"ids", answer.ids},
                                   {"text", answer.text},
                                   {"finish", name(ended.finish)},
                                   {"usage",
                                    {{"prompt_tokens", ended.usage.prompt_tokens},
                                     {"completion_tokens", ended.usage.completion_tokens},
                                     {"cached_tokens", ended.usage.cached_tokens}}},
                                   {"timing", timing},
                                   {"remote_prefill", ended.remote_prefill}};
  if (!answer.logprobs.empty()) object["logprobs"] = logprobs_json(answer);
  if (kv_digest) object["kv_digest"] = hex(ended.kv);
  if (!ended.status.ok()) {
    object["error"] = {{"code", std::string(name(ended.status.code))},
                       {"message", ended.status.message}};
  }
  return object;
}

}  // namespace

void AnswerPrinter::report(const std::optional<Figures>& measured, const Asked& asked) const {
  const std::string why = why_ended(answer_, asked);
  if (!why.empty()) say(why);
  say(summary(answer_, measured));
  if (asked.kv_digest) say("kv digest " + hex(answer_.ended.kv));
}

int AnswerPrinter::finish(const Ended& ended, const ModelCost& cost, const MachineLimits& limits,
                          const Asked& asked) {
  answer_.ended = ended;
  answer_.ended.status = in_option_words(ended.status);
  answer_.text += ended.text;
  const bool good = ended.finish == Finish::kStop || ended.finish == Finish::kLength;
  const auto measured = figures(answer_, cost, limits);
  if (json_) {
    // A refusal gives no object: there is no answer, not even a part of one.
    if (good || !answer_.ids.empty()) print_json(to_json(answer_, measured, asked.kv_digest));
  } else {
    std::fwrite(ended.text.data(), 1, ended.text.size(), stdout);
    if (!answer_.text.empty() && answer_.text.back() != '\n') std::fputc('\n', stdout);
    std::fflush(stdout);
    if (good && std::ferror(stdout) == 0) report(measured, asked);
  }
  if (good) return kExitOk;  // what could not be printed is said where all commands end
  const Status& why = answer_.ended.status;
  if (ended.finish != Finish::kCancelled) return fail(why);
  if (!stdout_works())
    return fail(error(Errc::kCancelled,
                      "cannot write the answer to standard output; the request is cancelled"));
  return fail(why.ok() ? error(Errc::kCancelled, "cancelled") : why);
}

}  // namespace headrace::cli
