#include "coordinator/chat_template.h"

#include <algorithm>
#include <array>

#include "coordinator/template_eval.h"
#include "coordinator/template_limits.h"
#include "coordinator/template_parser.h"
#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

constexpr std::array<std::string_view, 5> kTemplateRoles = {"system", "user", "assistant", "tool",
                                                            "developer"};

Value text_value(std::string text, bool from_template) {
  return std::make_shared<const TaggedText>(std::move(text), from_template);
}

Status check_messages(std::span<const ChatMessage> messages) {
  if (messages.empty()) return error(Errc::kInvalid, "messages is empty");
  if (messages.size() > kTemplateMessagesMax) {
    return error(Errc::kInvalid, "messages has " + std::to_string(messages.size()) +
                                     " entries, the limit is " +
                                     std::to_string(kTemplateMessagesMax));
  }
  size_t total = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string label = "messages[" + std::to_string(i) + "]";
    if (messages[i].role.empty()) return error(Errc::kInvalid, label + ".role is empty");
    for (const auto& [text, field] :
         {std::pair{&messages[i].role, ".role"}, std::pair{&messages[i].content, ".content"}}) {
      total += text->size();
      if (total > kTemplateOutputMax) {
        return error(Errc::kInvalid,
                     "messages hold more than " + std::to_string(kTemplateOutputMax) + " bytes");
      }
      if (const size_t bad = first_invalid_utf8(*text); bad != std::string_view::npos) {
        return error(Errc::kInvalid,
                     label + field + " is not valid UTF-8 at byte offset " + std::to_string(bad));
      }
    }
  }
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kTemplateSourceMax) {
    return error(Errc::kInvalid, "the chat template has " + std::to_string(source.size()) +
                                     " bytes, the limit is " + std::to_string(kTemplateSourceMax));
  }
  if (const size_t bad = first_invalid_utf8(source); bad != std::string_view::npos) {
    return error(Errc::kInvalid,
                 "the chat template is not valid UTF-8 at byte offset " + std::to_string(bad));
  }
  auto tokens = lex_template(source);
  if (!tokens) return tokens.error();
  auto program = parse_template(*std::move(tokens));
  if (!program) return program.error();
  ChatTemplate made;
  made.program_ = std::make_shared<const TemplateProgram>(*std::move(program));
  return made;
}

Result<std::vector<Segment>> ChatTemplate::render(const ChatInput& input) const {
  if (Status status = check_messages(input.messages); !status.ok()) return status;
  TemplateRun making = new_template_run();
  std::vector<Value> messages;
  for (const ChatMessage& m : input.messages) {
    const bool known = std::ranges::find(kTemplateRoles, m.role) != kTemplateRoles.end();
    messages.push_back(make_dict(
        making, {{"role", text_value(m.role, known)}, {"content", text_value(m.content, false)}}));
  }
  Value list = make_list(making, std::move(messages));
  if (!making.ok()) return making.status;
  // transformers passes tools and documents as none when there are none, and templates know it.
  auto text = run_template(*program_, {{"messages", std::move(list)},
                                       {"add_generation_prompt", input.add_generation_prompt},
                                       {"bos_token", text_value(input.bos_token, true)},
                                       {"eos_token", text_value(input.eos_token, true)},
                                       {"tools", None{}},
                                       {"documents", None{}}});
  if (!text) return text.error();
  std::vector<Segment> segments;
  size_t begin = 0;
  for (const auto& run : text->runs()) {
    segments.push_back({text->str().substr(begin, run.end - begin), run.from_template});
    begin = run.end;
  }
  return segments;
}

}  // namespace headrace::coordinator
