#include "coordinator/chat_template.h"

#include "coordinator/template_limits.h"
#include "tests/coordinator/text_support.h"

using namespace headrace;
using namespace headrace::coordinator;

namespace {

std::vector<Segment> segments(std::string_view source, const std::vector<ChatMessage>& messages,
                              bool add_generation_prompt = true) {
  ChatInput input;
  input.messages = messages;
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return value_of(value_of(ChatTemplate::parse(source)).render(input));
}

const std::vector<ChatMessage> kTalk = {
    {"system", " Be brief. "}, {"user", "Hi"}, {"assistant", "Hello!"}, {"user", "2+2?"}};

}  // namespace

// What the templates of well-known models make of a talk; the right texts come from Jinja2.
TEST_CASE("ChatML") {
  CHECK(rendered(kChatMl, kTalk) ==
        "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
        "<|im_start|>assistant\n");
}

TEST_CASE("Llama 3") {
  const char* source =
      "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
      "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "
      "trim + "
      "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif "
      "%}{{ "
      "content }}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
  CHECK(rendered(source, {{"system", " S "}, {"user", "U"}}) ==
        "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST_CASE("Mistral") {
  const char* source =
      "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != "
      "(loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if "
      "message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ "
      "message['content'] + eos_token}}{% endif %}{% endfor %}";
  CHECK(rendered(source, {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}) ==
        "<s>[INST] a [/INST]b</s>[INST] c [/INST]");
  CHECK(rendered(source, {{"assistant", "b"}}) ==
        "! chat template line 1: it refuses the chat: Roles must alternate");
}

TEST_CASE("Zephyr: the newlines of its blocks go, those of its prints stay") {
  const char* source =
      "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + "
      "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
      "'<|system|>\n' + "
      "message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt "
      "%}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";
  CHECK(rendered(source, {{"system", "S"}, {"user", "U"}}) ==
        "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\n");
}

TEST_CASE("Qwen: stripped blocks over many lines") {
  const char* source = R"({%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and not(message.content.startswith('<t>')) %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
)";
  CHECK(
      rendered(source, {{"system", "S"}, {"user", "U"}, {"assistant", "<think>x</think>\n\nA"}}) ==
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA"
      "<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("segments say who wrote what") {
  CHECK(segments(kChatMl, {{"user", "<|im_end|>"}}, false) ==
        std::vector<Segment>{
            {"<|im_start|>user\n", true}, {"<|im_end|>", false}, {"<|im_end|>\n", true}});
  CHECK(segments("{{ messages[0].role }}{{ bos_token }}{{ eos_token }}", {{"tool", "x"}}) ==
        std::vector<Segment>{{"tool<s></s>", true}});
  CHECK(segments("{{ messages[0].role }}", {{"custom", "x"}}) ==
        std::vector<Segment>{{"custom", false}});
  CHECK(segments("a{{ messages[0] | tojson }}", {{"user", "x\ny"}}) ==
        std::vector<Segment>{{"a{\"", true},
                             {"role", false},
                             {"\": \"user\", \"", true},
                             {"content", false},
                             {"\": \"", true},
                             {"x\\ny", false},
                             {"\"}", true}});
}

TEST_CASE("bad messages are refused by place") {
  CHECK(rendered("x", {}) == "! messages is empty");
  CHECK(rendered("x", {{"user", "a"}, {"", "b"}}) == "! messages[1].role is empty");
  CHECK(rendered("x", {{"user", "ab\xFF"}}) ==
        "! messages[0].content is not valid UTF-8 at byte offset 2");
  CHECK(rendered("x", {{"us\xC3", ""}}) ==
        "! messages[0].role is not valid UTF-8 at byte offset 2");
  CHECK(rendered("x", std::vector<ChatMessage>(kTemplateMessagesMax + 1, {"user", ""})) ==
        "! messages has 4097 entries, the limit is 4096");
  CHECK(rendered("x", {{"user", std::string(kTemplateOutputMax + 1, 'a')}}).find("bytes") !=
        std::string::npos);
}

TEST_CASE("user text is never read as a template") {
  CHECK(rendered(kChatMl, {{"user", "{{ 1 + 1 }}{% if %}{#"}}).find("{{ 1 + 1 }}{% if %}{#") !=
        std::string::npos);
}

TEST_CASE("templates that are too large or not text are refused") {
  CHECK(
      rendered(std::string(kTemplateSourceMax + 1, 'a')).find(std::to_string(kTemplateSourceMax)) !=
      std::string::npos);
  CHECK(rendered("a\xFF") == "! the chat template is not valid UTF-8 at byte offset 1");
  CHECK(rendered(std::string("a\0b", 3)) == std::string("a\0b", 3));
}

TEST_CASE("many long messages are rendered in time") {
  std::vector<ChatMessage> talk(1000, {"user", std::string(1000, 'x')});
  CHECK(rendered(kChatMl, talk).size() > 1'000'000);
}

TEST_CASE("a template can be shared and copied") {
  const auto one = value_of(ChatTemplate::parse("{{ messages[0].content }}"));
  const ChatTemplate two = one;
  ChatInput input;
  const std::vector<ChatMessage> hi = {{"user", "hi"}};
  input.messages = hi;
  CHECK(value_of(one.render(input)) == value_of(two.render(input)));
}
