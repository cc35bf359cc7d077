// Known answers of whole models: the script model, whose every logit is known by hand, and the tiny
// Llama with RoPE scaling and a tied output matrix.
#include <cmath>

#include "tests/worker/model_support.h"

namespace headrace::worker {
namespace {

double logprob(const std::vector<float>& logits, Token id) {
  double top = logits[0], sum = 0;
  for (const float x : logits) top = std::max(top, double{x});
  for (const float x : logits) sum += std::exp(x - top);
  return logits[static_cast<size_t>(id)] - top - std::log(sum);
}

TEST_CASE("the script model says its script") {
  for (const std::string variant : {"base", "padded", "inf", "big", "bos"}) {
    const auto file = open_model(test_model("script/" + variant + ".gguf"));
    const auto right = read_json(test_model("script/" + variant + ".json"));
    for (NamedDevice& d : all_devices()) {
      CAPTURE(variant);
      CAPTURE(d.name);
      EngineOptions options;
      options.blocks = 2;
      const auto engine = make_engine(file, std::move(d.device), options);
      for (const auto& item : right["greedy_ids"].items()) {
        const std::string prompt = item.key();
        CAPTURE(prompt);
        const auto wanted = item.value().get<std::vector<Token>>();
        CHECK(generate(*engine, bytes_of(prompt), wanted.size()).ids == wanted);
      }
      const Answer a = generate(*engine, bytes_of("A"), 1);
      REQUIRE(a.logits[0].size() == 261);  // rows beyond the tokenizer do not count
      CHECK(a.logits[0]['B'] ==
            doctest::Approx(right["scripted_logit"].get<double>()).epsilon(1e-5));
      CHECK(a.logits[0]['C'] == 0.0f);
      CHECK(std::abs(logprob(a.logits[0], 'B') - right["scripted_logprob"].get<double>()) < 1e-5);
      const Answer b = generate(*engine, bytes_of("("), 1);
      // In variant big the norm's eps weighs less, which shifts these by 3e-4.
      const double bound = variant == "big" ? 1e-3 : 1e-5;
      for (const auto& [next, p] : right["after_open_bracket"].items())
        CHECK(std::abs(std::exp(logprob(b.logits[0], next[0])) - p.get<double>()) < bound);
    }
  }
}

TEST_CASE("a row beyond the tokenizer is never chosen") {
  EngineOptions options;
  options.blocks = 1;
  for (NamedDevice& d : all_devices()) {
    CAPTURE(d.name);
    const auto engine =
        make_engine(open_model(test_model("script/padded.gguf")), std::move(d.device), options);
    CHECK(generate(*engine, bytes_of("^"), 1).ids == std::vector<Token>{0});  // all known are equal
  }
}

TEST_CASE("the tiny Llama's RoPE scaling and tied output are honoured") {
  for (const std::string variant : {"base", "tied", "linear", "llama3"}) {
    const auto file = open_model(test_model("tiny/" + variant + ".gguf"));
    const auto right = read_json(test_model("tiny/" + variant + ".json"));
    for (NamedDevice& d : all_devices()) {
      CAPTURE(variant);
      CAPTURE(d.name);
      EngineOptions options;
      options.blocks = 4;
      options.block_tokens = 16;
      const auto engine = make_engine(file, std::move(d.device), options);
      const Answer a = generate(*engine, right["prompt_ids"], 16);
      const auto logits = right["last_logits"].get<std::vector<double>>();
      for (size_t i = 0; i < logits.size(); i++)
        CHECK(std::abs(a.logits[0][i] - logits[i]) < (d.reference ? 1e-4 : 2e-2));
      CHECK(a.ids == right["greedy_ids"].get<std::vector<Token>>());
    }
  }
}

// Without its scaling a model gives other logits, so that the case above can fail.
TEST_CASE("the variants differ by more than the bounds") {
  const auto base = read_json(test_model("tiny/base.json"))["last_logits"];
  for (const std::string variant : {"linear", "llama3"}) {
    const auto other = read_json(test_model("tiny/" + variant + ".json"))["last_logits"];
    double worst = 0;
    for (size_t i = 0; i < base.size(); i++)
      worst = std::max(worst, std::abs(base[i].get<double>() - other[i].get<double>()));
    CHECK(worst > 0.1);
  }
}

}  // namespace
}  // namespace headrace::worker
