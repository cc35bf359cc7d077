#include "deploy/cli/options.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/deploy/capture.h"

namespace headrace::cli {
namespace {

TEST_CASE("device names") {
  for (const char* name :
       {"auto", "cpu", "cpu:portable", "cpu:avx2", "cpu:avx512vnni", "cpu:amx", "reference"}) {
    CAPTURE(name);
    CHECK(check_device_name(name).empty());
  }
  for (const char* name : {"", "gpu", "cpu:", "cpu:sse", "CPU", "portable"}) {
    CAPTURE(name);
    CHECK(!check_device_name(name).empty());
  }
  CHECK(cpu_path_of("auto") == kernels::best_cpu_path());
  CHECK(cpu_path_of("cpu:avx2") == kernels::CpuPath::kAvx2);
  CHECK(!cpu_path_of("reference"));
  CHECK(make_device("cpu:portable", 1));
  CHECK(!make_device("gpu", 1));
  if (!kernels::supported(kernels::CpuPath::kAvx512Vnni)) {
    CHECK(make_device("cpu:avx512vnni", 1).error().message.find("cannot run") != std::string::npos);
  }
}

TEST_CASE("a device has the KV that it can have, or says what it has") {
  using kernels::KvType;
  for (const char* device : {"cpu:portable", "reference"}) {
    CAPTURE(device);
    const KvType type = device[0] == 'c' ? KvType::kF16 : KvType::kF32;
    CHECK((*make_device(device, 1))->kv_type() == type);
    CHECK((*make_device(device, 1, type))->kv_type() == type);
    for (const KvType other : {KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
      const auto none = make_device(device, 1, other);
      REQUIRE(!none);
      const std::string text = none.error().message;
      CAPTURE(text);
      CHECK(text.starts_with(std::string("--kv-type ") + name(other) + " is for GPUs: the KV of "));
      CHECK(text.ends_with(std::string(" is ") + name(type)));
    }
  }
  CHECK(make_device("reference", 1, KvType::kF16).error().message.ends_with("reference is f32"));
}

TEST_CASE("products by cuBLASLt are for GPUs") {
  for (const char* const device : {"cpu", "cpu:portable", "reference"}) {
    const auto none = make_device(device, 1, {}, true);
    REQUIRE(!none);
    CHECK(none.error().message ==
          std::string("--prefill-gemm library is for GPUs, and device ") + device + " is none");
  }
}

TEST_CASE("a rejected worker hears which option decides what differs") {
  const auto told = [](const std::string& why) {
    return with_options(error(Errc::kInvalid, why)).message;
  };
  CHECK(told("worker has KV layout 'a', this cluster has KV layout 'b'") ==
        "worker has KV layout 'a', this cluster has KV layout 'b'; --kv-type and --device decide "
        "it");
  CHECK(told("worker has arithmetic 'a'").ends_with("; --device and --prefill-gemm decide it"));
  CHECK(told("worker has KV blocks of tokens: 1").ends_with("; --kv-block-tokens decides it"));
  CHECK(told("worker has tokenizer 1") == "worker has tokenizer 1");
}

TEST_CASE("a GPU that is not there is refused with the option's name") {
  const auto none = make_device("cuda:9", 1);
  REQUIRE(!none);
  CHECK(none.error().message.starts_with("--device cuda:9: "));
}

TEST_CASE("the state folder: option, XDG, home, temporary") {
  const auto with = [](const char* xdg, const char* home) {
    setenv("XDG_STATE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    return state_folder("");
  };
  const std::string home = getenv("HOME");
  CHECK(state_folder("/x") == "/x");
  CHECK(with("/s", "/h") == "/s/headrace");
  CHECK(with("relative", "/h") == "/h/.local/state/headrace");
  CHECK(with("", "").find("/headrace-") != std::string::npos);
  setenv("HOME", home.c_str(), 1);
  setenv("XDG_STATE_HOME", HEADRACE_TEST_STATE, 1);
}

TEST_CASE("loopback or not") {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) CHECK(loopback(host));
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "example.org", ""}) CHECK(!loopback(host));
  CHECK(check_exposure({"127.0.0.1", 1}, "the mesh", false).ok());
  CHECK(!check_exposure({"0.0.0.0", 1}, "the mesh", false).ok());
  Capture errors(STDERR_FILENO);
  CHECK(check_exposure({"0.0.0.0", 1}, "the mesh", true).ok());
  CHECK(errors.text().find("WARNING: the mesh on 0.0.0.0:1") != std::string::npos);
}

TEST_CASE("prompts take the form that was asked for") {
  AskOptions ask;
  CHECK(std::get<std::string>(*ask.read_prompt("hi", true)) == "hi");
  CHECK(std::get<std::string>(*ask.read_prompt("", true)).empty());
  ask.system = "be brief";
  const auto chat = std::get<std::vector<coordinator::ChatMessage>>(*ask.read_prompt("hi", true));
  REQUIRE(chat.size() == 2);
  CHECK(chat[0].role == "system");
  CHECK(chat[1].content == "hi");
  AskOptions ids;
  ids.prompt_ids = "3,1";
  CHECK(std::get<std::vector<Token>>(*ids.read_prompt("", false)) == std::vector<Token>{3, 1});
  CHECK(!ids.read_prompt("hi", true));
}

TEST_CASE("refusals of the coordinator in words of the command line") {
  const auto said = [](Errc code, const char* text) {
    return in_option_words(error(code, text)).message;
  };
  CHECK(said(Errc::kInvalid, "stop_tokens: id 7 is") == "--stop-token: id 7 is");
  CHECK(said(Errc::kInvalid, "logit_bias names token 9") == "--logit-bias names token 9");
  CHECK(said(Errc::kInvalid, "stop[3] is empty") == "--stop[3] is empty");
  CHECK(said(Errc::kInvalid, "stopped by top_p") == "stopped by top_p");
  CHECK(said(Errc::kInternal, "stop: no") == "stop: no");
}

TEST_CASE("too many of an option, and a token named twice") {
  AskOptions ask;
  CHECK(ask.check().ok());
  ask.stop.assign(16, "x");
  ask.logit_bias = {"1=2", "3=4"};
  CHECK(ask.check().ok());
  ask.logit_bias.push_back("1=-5");
  CHECK(ask.check().message == "--logit-bias names token 1 twice");
  ask.stop.push_back("x");
  CHECK(ask.check().message == "--stop is given 17 times, the limit is 16");
}

TEST_CASE("what a child is given is what was asked for") {
  EngineOptions options;
  options.threads = 3;
  options.block_tokens = 16;
  options.state_dir = "/x";
  const auto given = [](const std::vector<std::string>& words) {
    EngineOptions child;
    CLI::App app;
    child.add_to(app);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    return child;
  };
  const EngineOptions child = given(options.arguments());
  CHECK(child.threads == 3);
  CHECK(child.block_tokens == 16);
  CHECK(child.device == options.device);
  CHECK(child.state_dir == "/x");
  CHECK(!child.prefill_library);
  options.prefill_library = true;
  CHECK(given(options.arguments()).prefill_library);
  CHECK_THROWS_AS(given({"--prefill-gemm", "fast"}), CLI::ValidationError);
  CHECK(!child.kv_type);
  for (const kernels::KvType type : kernels::kKvTypes) {
    options.kv_type = type;
    CHECK(given(options.arguments()).kv_type == type);
  }
  for (const char* wrong : {"f32", "fp16", "", "FP8"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(given({"--kv-type", wrong}),
                         doctest::Contains("takes f16, bf16, fp8 or int8, not"),
                         CLI::ValidationError);
  }
}

}  // namespace
}  // namespace headrace::cli
