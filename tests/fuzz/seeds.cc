// Writes the inputs that the fuzz targets begin with: fuzz_seeds MODELS OUT_DIR. Real messages,
// real requests, small model files, templates and texts, a whole hand-off: one file each.
#define DOCTEST_CONFIG_IMPLEMENT
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "protocol/client_words.h"
#include "protocol/codec.h"
#include "tests/protocol/codec_samples.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
constexpr uintmax_t kFileMax = 120'000;  // of a model as a seed: small ones are mutated faster

class Seeds {
 public:
  explicit Seeds(fs::path out) : out_(std::move(out)) {}
  void add(const char* target, const std::string& bytes) {
    const fs::path folder = out_ / target;
    fs::create_directories(folder);
    const std::string name = std::to_string(count_++);
    std::ofstream file(folder / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file) {
      std::fprintf(stderr, "cannot write %s\n", (folder / name).c_str());
      std::exit(1);
    }
  }
  size_t count() const { return count_; }

 private:
  fs::path out_;
  size_t count_ = 0;
};

std::string text_of(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string framed(const std::string& body) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(body.size() >> (8 * i));
  return out + body;
}

void add_mesh(Seeds& seeds) {
  constexpr size_t kSeedMax = 20'000;
  const auto add = [&](char kind, const Bytes& frame) {
    if (frame.size() > kSeedMax) return;
    seeds.add("mesh", kind + text_of(frame));
    if (frame.size() < 1000) seeds.add("link", '\x40' + framed(text_of(frame)) + framed("x"));
  };
  for (const auto& m : sample_to_worker()) add(0, encode(m));
  for (const auto& m : sample_to_coordinator()) add(1, encode(m));
  for (const auto& m : sample_tokenizers()) add(2, encode(m));
}

void add_requests(Seeds& seeds) {
  for (int i = 0; i < 3; ++i) {
    client::GenerateRequest request;
    if (i == 0) request.prompt = std::string("A prompt");
    if (i == 1) request.prompt = std::vector<Token>{1, 2, 300};
    if (i == 2)
      request.prompt = std::vector<client::ChatMessage>{{"user", "hi"}, {"assistant", "?"}};
    request.sampling.temperature = 0.5f;
    capnp::MallocMessageBuilder message(i == 1 ? 4 : 64);  // one of many small segments
    client::write(message.initRoot<api::GenerateRequest>(), request);
    const auto words = capnp::messageToFlatArray(message);
    const auto bytes = words.asBytes();
    const std::string one(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
    seeds.add("api", one);
    seeds.add("frames", one + one);
  }
  seeds.add("frames", std::string("\0\0\0\0\1\0\0\0", 8) + std::string(8, '\0'));
}

void add_models(Seeds& seeds, const fs::path& models) {
  for (const char* folder : {"bad", "tiny"}) {
    for (const auto& entry : fs::directory_iterator(models / folder)) {
      if (entry.path().extension() != ".gguf" || entry.file_size() > kFileMax) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      seeds.add("gguf", {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
  }
}

void add_texts(Seeds& seeds) {
  const char* const texts[] = {"The quick brown fox, 1234567 times!",
                               "   \n\n\t  x  ",
                               "aaaaaaaaaaaaaaaaaaaaaaaaa",
                               "don't we'll I'M",
                               "caf\xC3\xA9 na\xC3\xAFve",
                               "\xF0\x9F\xA6\x99\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD",
                               "<|im_start|>user\n<|im_end|>",
                               "<|im_start|><|im_sta",
                               "\xE2\x80\x8D\xCC\x81\xCC\x81",
                               "\xC3(",
                               "ababababab thethethe 0000000"};
  for (const char* text : texts) {
    for (const char how : {'\0', '\1', '\xFF'}) seeds.add("tokenizer", how + std::string(text));
  }
}

void add_templates(Seeds& seeds) {
  const char* const templates[] = {
      "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "{{ bos_token }}{%- if messages[0].role == 'system' -%}{{ messages[0].content | trim }}"
      "{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}",
      "{% for m in messages if m.role in ['user', 'tool'] %}{{ loop.index0 ~ loop.last }}"
      "{% else %}none{% endfor %}",
      "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}"
      "{{ ns.n }}{{ 7 // 2 % 3 - 1 * 2 }}",
      "{{ raise_exception('no ' + messages[0]['role']) }}",
      "{{ {'a': [1, 2.5, none, true]} }}{{ messages | length }}{{ messages[-1].content.strip() }}",
      "{# comment #}{{ 'a' if messages is defined and not false else 'b' }}{{ x is none }}",
      "{{ messages[0].content.split('a')[0] | upper | replace('B', 'C') }}"};
  for (const char* text : templates) {
    seeds.add("chat_template", text);
    seeds.add("chat_template", std::string(text) + "\xFFsystem\xFF be  \xFFuser\xFFhi <b>\xFF");
  }
}

void add_handoffs(Seeds& seeds) {
  // Operations of handoff.cc: hello, slices of 64, ends of chunks, commit.
  const std::string slice("\x02\x3F", 2);
  const std::string all = "\x01" + slice + slice + "\x03" + slice + "\x03\x04";
  seeds.add("handoff", all);
  seeds.add("handoff", "\x06" + all + all);
  seeds.add("handoff", "\x01" + slice + std::string("\x05\x20\x07\x02\x10\x02\x10", 7));
  seeds.add("handoff", "\x01" + slice + std::string("\x0A\x3F\x04\x01", 4) + "\x03\x04");
  seeds.add("handoff", "\x01" + slice + "\x0F" + slice);
  for (char field = 0; field < 6; ++field) seeds.add("handoff", std::string("\x09") + field + "\1");
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: fuzz_seeds MODELS OUT_DIR\n");
    return 2;
  }
  headrace::Seeds seeds(argv[2]);
  headrace::add_mesh(seeds);
  headrace::add_requests(seeds);
  headrace::add_models(seeds, argv[1]);
  headrace::add_texts(seeds);
  headrace::add_templates(seeds);
  headrace::add_handoffs(seeds);
  std::printf("%zu seeds\n", seeds.count());
  return 0;
}
