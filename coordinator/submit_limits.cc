#include "coordinator/submit_limits.h"

#include <string>

#include "coordinator/limits.h"
#include "coordinator/sampling_limits.h"
#include "coordinator/utf8.h"

namespace headrace::coordinator {
namespace {

Status invalid(std::string what) { return error(Errc::kInvalid, std::move(what)); }

Status check_stops(const Submit& submit) {
  if (submit.stop.size() > kStopsMax)
    return invalid("stop has " + std::to_string(submit.stop.size()) + " texts, the limit is " +
                   std::to_string(kStopsMax));
  for (const std::string& text : submit.stop) {
    if (text.empty()) return invalid("stop: a text is empty");
    if (text.size() > kStopBytesMax)
      return invalid("stop: a text is " + std::to_string(text.size()) + " bytes, the limit is " +
                     std::to_string(kStopBytesMax));
    if (const size_t at = first_invalid_utf8(text); at != std::string::npos)
      return invalid("stop: a text is not UTF-8 at byte " + std::to_string(at));
  }
  return {};
}

}  // namespace

size_t prompt_bytes(const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  if (const auto* ids = std::get_if<std::vector<Token>>(&prompt))
    return ids->size() * sizeof(Token);
  size_t bytes = 0;
  for (const ChatMessage& m : std::get<std::vector<ChatMessage>>(prompt))
    bytes += m.role.size() + m.content.size();
  return bytes;
}

Status check_prompt(const Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
    if (ids->empty()) return invalid("prompt: the list of ids is empty");
    if (ids->size() > kPromptBytesMax)
      return invalid("prompt has " + std::to_string(ids->size()) + " ids, the limit is " +
                     std::to_string(kPromptBytesMax));
    return {};
  }
  if (prompt_bytes(prompt) > kPromptBytesMax)
    return invalid("prompt is " + std::to_string(prompt_bytes(prompt)) +
                   " bytes of text, the limit is " + std::to_string(kPromptBytesMax));
  const auto* messages = std::get_if<std::vector<ChatMessage>>(&prompt);
  if (messages && messages->empty()) return invalid("prompt: the list of messages is empty");
  if (messages && messages->size() > kMessagesMax)
    return invalid("prompt has " + std::to_string(messages->size()) + " messages, the limit is " +
                   std::to_string(kMessagesMax));
  return {};
}

Status check_submit_ids(const Submit& submit, uint32_t vocab) {
  for (const Token id : submit.stop_tokens)
    if (id < 0 || static_cast<uint32_t>(id) >= vocab)
      return invalid("stop_tokens: id " + std::to_string(id) + " is outside of the vocabulary of " +
                     std::to_string(vocab));
  return check_sampling(submit.sampling, vocab);
}

Status check_submit_fields(const Submit& submit, uint32_t vocab) {
  if (!submit.request) return invalid("request: the id is zero");
  if (submit.max_tokens && *submit.max_tokens == 0)
    return invalid("max_tokens is 0, at least 1 is needed");
  if (submit.deadline <= Duration{0}) return invalid("deadline has passed already");
  if (submit.stop_tokens.size() > kStopTokensMax)
    return invalid("stop_tokens has " + std::to_string(submit.stop_tokens.size()) +
                   " ids, the limit is " + std::to_string(kStopTokensMax));
  if (submit.cache_salt.size() > kCacheSaltBytesMax)
    return invalid("cache_salt is " + std::to_string(submit.cache_salt.size()) +
                   " bytes, the limit is " + std::to_string(kCacheSaltBytesMax));
  if (const size_t at = first_invalid_utf8(submit.cache_salt); at != std::string::npos)
    return invalid("cache_salt is not UTF-8 at byte " + std::to_string(at));
  if (Status status = check_stops(submit); !status.ok()) return status;
  if (Status status = check_submit_ids(submit, vocab); !status.ok()) return status;
  return check_prompt(submit.prompt);
}

}  // namespace headrace::coordinator
