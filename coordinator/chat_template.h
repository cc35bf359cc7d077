#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/client_port.h"
#include "protocol/result.h"

namespace headrace::coordinator {

// A stretch of rendered text and who wrote it.
struct Segment {
  std::string text;
  bool from_template = false;  // else by the user: its letters never make a control token
  bool operator==(const Segment&) const = default;
};

struct ChatInput {
  std::span<const ChatMessage> messages;
  bool add_generation_prompt = true;
  std::string bos_token;  // names; the template's own
  std::string eos_token;
};

struct TemplateProgram;

// A model's chat template: the part of Jinja that such templates use, set up as transformers does
// (trim_blocks and lstrip_blocks on; `tools` and `documents` are none). Immutable; may be used from
// many threads at once; a value.
//
// Known: {{ }}, {# #}, if/elif/else, for (several names, `if`, else, the loop variable), set (also
// of a namespace's member), white-space signs; literals, lists, dictionaries, [ ], slices, members;
// + - * / // % ~, comparisons, in, and/or/not, inline if; the filters, tests, methods and functions
// of the table in template_functions.cc. Not known: macros, block set, include, raw, break, tuples.
//
// Every character carries who wrote it through all operations: literals, bos and eos are the
// template's, message contents the user's. Roles count as the template's if they are one of
// system, user, assistant, tool, developer, since templates build control names from them.
//
// A template comes with a model file, messages from a client: neither can crash or hang this. It
// has no attributes of the host, no calls but a fixed list, no recursion on the length of its
// input, and budgets (template_limits.h). All errors are kInvalid with the line at fault.
class ChatTemplate {
 public:
  // Unknown tags, filters, tests, functions and methods are refused here, with line and name.
  static Result<ChatTemplate> parse(std::string_view source);

  // Neighbouring segments of one origin are joined. Refused: no messages, an empty role, text that
  // is not UTF-8, a budget used up, what the template itself refuses (raise_exception).
  Result<std::vector<Segment>> render(const ChatInput& input) const;

 private:
  std::shared_ptr<const TemplateProgram> program_;
};

}  // namespace headrace::coordinator
