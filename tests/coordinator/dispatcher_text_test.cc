// Prompts on their way to become tokens, and the text of answers: coordinator/dispatcher_text.cc.
#include "protocol/codec.h"
#include "tests/coordinator/fakes.h"
#include "tests/coordinator/text_support.h"

#include <doctest/doctest.h>

namespace headrace::coordinator {
using namespace fakes;
namespace {

// With the tokenizer of the script model S: bytes, and "END" as one token.
struct ScriptBench : Bench {
  ScriptBench()
      : Bench({},
              [](std::span<const std::byte>) { return make_text_model(encode(script_data())); }) {
    auto who = hello(Role::kBoth, 1);
    who.card.vocab = 261;
    join(who, 1);
  }
  static Submit ask(std::string prompt, std::vector<std::string> stop) {
    Submit m;
    m.request = {1, 1};
    m.prompt = std::move(prompt);
    m.stop = std::move(stop);
    return m;
  }
  // The worker makes one token at a time until its request is over.
  void generate(const Client& client, std::vector<Token> ids, Finish last) {
    const auto first = *this->last<to_worker::Prepare>(1);
    for (uint32_t at = 0; at < ids.size() && !client.ended; ++at) {
      to_coordinator::TokenRun run;
      run.transfer = first.transfer;
      run.attempt = first.attempt;
      run.position = at;
      run.ids = {ids[at]};
      run.finish = at + 1 == ids.size() ? last : Finish::kNone;
      from(1, to_coordinator::Tokens{{run}});
      acknowledge(1, static_cast<uint32_t>(client.ids.size()));
    }
  }
};

std::vector<Token> alphabet(char until = 'Z') {
  std::vector<Token> out;
  for (char c = 'B'; c <= until; ++c) out.push_back(c);
  return out;
}

}  // namespace

TEST_CASE("stop texts that span tokens, are none, end with the answer, lie inside of a token") {
  struct Row {
    std::string stop;
    bool include;
    std::vector<Token> ids;
    Finish worker, finish;
    std::string text;
    size_t tokens;
  };
  const Row rows[] = {
      {"GHI", false, alphabet(), Finish::kStop, Finish::kStop, "BCDEF", 8},
      {"GHX", false, alphabet(), Finish::kStop, Finish::kStop, "BCDEFGHIJKLMNOPQRSTUVWXYZ", 25},
      {"GHI", false, alphabet('G'), Finish::kLength, Finish::kLength, "BCDEFG", 6},
      {"N", false, {260}, Finish::kStop, Finish::kStop, "E", 1},
      {"GHI", true, alphabet(), Finish::kStop, Finish::kStop, "BCDEFGHI", 8},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    ScriptBench b;
    Submit m = ScriptBench::ask("A", {row.stop});
    m.include_stop = row.include;
    auto client = b.submit(std::move(m));
    b.generate(*client, row.ids, row.worker);
    REQUIRE(client->ended);
    CHECK(client->ended->finish == row.finish);
    CHECK(client->text == row.text);
    CHECK(client->ids.size() == row.tokens);
    CHECK(client->ended->usage.completion_tokens == row.tokens);
    CHECK(b.last<to_worker::Cancel>(1) != nullptr);
    CHECK(b.status().workers.at(0).in_flight == 0);
  }
}

TEST_CASE("a stop text found in one run of many tokens cuts the log behind it") {
  ScriptBench b;
  auto client = b.submit(ScriptBench::ask("A", {"GHI"}));
  b.tokens(1, 0, "BCDEFGHIJKLMN");
  REQUIRE(client->ended);
  CHECK(client->text == "BCDEF");
  CHECK(client->ids.size() == 8);
  CHECK(b.status().totals.tokens == 8);
  CHECK(b.status().totals.stop_matched == 1);
}

TEST_CASE("a stop text that begins before a worker is lost and ends behind it") {
  ScriptBench b;
  auto client = b.submit(ScriptBench::ask("A", {"GHI"}));
  b.tokens(1, 0, "BCDEFG");
  CHECK(client->text == "BCDEF");
  auto who = hello(Role::kBoth, 2);
  who.card.vocab = 261;
  b.join(who, 2);
  b.lose(1);
  REQUIRE(b.last<to_worker::Prepare>(2));
  b.tokens(2, 6, "HIJ");
  REQUIRE(client->ended);
  CHECK(client->text == "BCDEF");
  CHECK(client->ended->finish == Finish::kStop);
}

TEST_CASE("characters of many tokens come whole") {
  ScriptBench b;
  auto client = b.submit(ScriptBench::ask("!", {"never"}));
  b.generate(*client, {0xF0, 0x9F, 0xA6, 0x99, '.'}, Finish::kStop);
  CHECK(client->text == "\xF0\x9F\xA6\x99.");
  ScriptBench c;
  auto cut = c.submit(ScriptBench::ask("!", {}));
  c.generate(*cut, {0xF0, 0x9F}, Finish::kLength);
  CHECK(cut->text == "\xEF\xBF\xBD");
  CHECK(cut->ended->usage.completion_tokens == 2);
}

TEST_CASE("what ends an answer: the model's own end unless ignored, and stop tokens") {
  for (const bool ignore : {false, true}) {
    Bench b;
    b.join(Role::kBoth, 1);
    Submit m = ScriptBench::ask("A", {});
    m.ignore_eos = ignore;
    m.stop_tokens = {5, 6};
    b.submit(std::move(m));
    std::vector<Token> right = {5, 6};
    if (!ignore) right.insert(right.begin(), 257);
    CHECK(b.last<to_worker::Prepare>(1)->end_tokens == right);
  }
}

TEST_CASE("a stop token outside of a vocabulary that is learnt late is refused before any work") {
  Bench b;
  Submit m = ScriptBench::ask("A", {});
  m.stop_tokens = {4000};
  auto client = b.submit(std::move(m));
  CHECK_FALSE(client->ended);  // no model yet
  b.join(Role::kBoth, 1);
  REQUIRE(client->ended);
  CHECK(client->ended->status.code == Errc::kInvalid);
  CHECK(client->ended->status.message.find("stop_tokens") != std::string::npos);
  CHECK(b.count<to_worker::Prepare>(1) == 0);
}

TEST_CASE("prompts become tokens elsewhere: nobody waits but those behind") {
  auto text = std::make_shared<ManualStrand>();
  DispatcherOptions options;
  options.text_strand = text;
  Bench b(options);
  b.join(Role::kBoth, 1);
  auto large = b.submit(std::string(400, 'a'), 1);
  auto small = b.submit("b", 2);
  CHECK(b.count<to_worker::Prepare>(1) == 0);
  CHECK(b.status().waiting == 2);  // the Dispatcher answers meanwhile
  b.tell(Abandon{{1, 1}});         // and ends what is given up
  REQUIRE(large->ended);
  auto third = b.submit("c", 3);
  text->drain();
  b.strand->drain();
  CHECK(b.count<to_worker::Prepare>(1) == 2);
  CHECK(b.last<to_worker::Prepare>(1)->prompt == std::vector<Token>{'c'});  // in order
  text->stop();
}

TEST_CASE("an id used again while the old prompt is still on its way is another request") {
  auto text = std::make_shared<ManualStrand>();
  DispatcherOptions options;
  options.text_strand = text;
  Bench b(options);
  b.join(Role::kBoth, 1);
  b.submit("old", 1);
  b.tell(Abandon{{1, 1}});
  auto client = b.submit("new", 1);
  text->drain();
  b.strand->drain();
  CHECK(b.count<to_worker::Prepare>(1) == 1);
  CHECK(b.last<to_worker::Prepare>(1)->prompt == std::vector<Token>{'n', 'e', 'w'});
  CHECK_FALSE(client->ended);
  text->stop();
}

TEST_CASE("the bytes that wait to become tokens are bounded, and given back") {
  auto text = std::make_shared<ManualStrand>();
  DispatcherOptions options;
  options.text_strand = text;
  Bench b(options);
  b.join(Role::kBoth, 1);
  const size_t most = kTextWaitingBytesMax / kPromptBytesMax;
  for (uint64_t i = 1; i <= most; ++i) b.submit(std::string(kPromptBytesMax, 'x'), i);
  auto over = b.submit("y", 99);
  REQUIRE(over->ended);
  CHECK(over->ended->status.code == Errc::kOverloaded);
  CHECK(over->ended->status.message.find(std::to_string(kTextWaitingBytesMax)) !=
        std::string::npos);
  // One that is given up holds its place until its job is gone.
  b.tell(Abandon{{1, 1}});
  CHECK(b.submit("y", 99)->ended);
  text->drain();
  b.strand->drain();
  CHECK_FALSE(b.submit("y", 99)->ended);
  text->drain();
  b.strand->drain();
  CHECK(b.last<to_worker::Prepare>(1)->prompt.size() == 1);
  text->stop();
}

TEST_CASE("questions to the tokenizer have limits of their own") {
  Bench b;
  b.join(Role::kBoth, 1);
  struct Keep final : ReplyPort<Result<std::string>> {
    void on(Result<std::string> r) override { kept = std::move(r); }
    std::optional<Result<std::string>> kept;
  };
  auto keep = std::make_shared<Keep>();
  b.tell(AskDetokenize{{'h', 'i'}, Ref<ReplyPort<Result<std::string>>>(b.strand, keep)});
  REQUIRE(keep->kept);
  CHECK(**keep->kept == "hi");
  b.tell(AskDetokenize{std::vector<Token>(kDetokenizeIdsMax + 1, 'x'),
                       Ref<ReplyPort<Result<std::string>>>(b.strand, keep)});
  CHECK(keep->kept->error().message.find(std::to_string(kDetokenizeIdsMax)) != std::string::npos);
  // Few ids may stand for much text.
  const auto model = value_of(make_text_model(encode(script_data())));
  CHECK(model->decode(std::vector<Token>(kDetokenizeBytesMax / 3, 260)).has_value());
  const auto no = model->decode(std::vector<Token>(kDetokenizeBytesMax / 3 + 1, 260));
  REQUIRE_FALSE(no);
  CHECK(no.error().message.find(std::to_string(kDetokenizeBytesMax)) != std::string::npos);
}

}  // namespace headrace::coordinator
