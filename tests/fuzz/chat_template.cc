// A model file's template over a client's messages: an error or text within the budgets, and no
// letter of the client's ever counts as the template's.
#include <string>
#include <vector>

#include "coordinator/chat_template.h"
#include "coordinator/template_limits.h"
#include "tests/fuzz/input.h"

namespace headrace::coordinator {
namespace {

// U+E123, private: nothing makes it but what the client wrote.
constexpr const char* kMark = "\xEE\x84\xA3";

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

void render(const std::string& source, const ChatTemplate& parsed, ChatInput input) {
  const auto segments = parsed.render(input);
  if (!segments) {
    CHECK(!segments.error().message.empty());
    return;
  }
  // A template that writes escapes may write the mark itself.
  const bool marked = !holds(source, kMark) && !holds(source, "\\");
  size_t bytes = 0;
  const Segment* before = nullptr;
  for (const Segment& s : *segments) {
    bytes += s.text.size();
    CHECK(fuzz::is_utf8(s.text));
    CHECK(!s.text.empty());
    CHECK(!before || before->from_template != s.from_template);
    CHECK(!marked || !s.from_template || !holds(s.text, kMark));
    before = &s;
  }
  CHECK(bytes <= kTemplateOutputMax);
}

}  // namespace
}  // namespace headrace::coordinator

// The template, then roles and contents in turn, each up to an 0xFF.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace::coordinator;
  headrace::fuzz::Input input(data, size);
  const std::string source = input.line();
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  std::vector<ChatMessage> messages;
  while (!input.empty() && messages.size() < 8) {
    std::string role = input.line();
    messages.push_back({std::move(role), kMark + input.line()});
  }
  if (messages.empty()) messages = {{"user", std::string("hi ") + kMark}};
  ChatInput chat;
  chat.messages = messages;
  chat.bos_token = "<s>";
  chat.eos_token = "</s>";
  render(source, *parsed, chat);
  chat.add_generation_prompt = false;
  render(source, *parsed, chat);
  return 0;
}
