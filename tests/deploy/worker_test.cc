#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("a worker needs a model, a mesh, and a word for an open KV channel") {
  const std::string model = test_model("script/base.gguf");
  CHECK(headrace({"worker", model}).one_error("--join"));
  CHECK(headrace({"worker", "--join", "127.0.0.1:9"}).one_error("MODEL"));
  const Outcome open = headrace({"worker", model, "--join", "127.0.0.1:9", "--kv", "0.0.0.0:0"});
  CHECK(open.status == 2);
  CHECK(open.one_error("--insecure-mesh"));
  for (const std::string& name :
       {std::string("a\nb"), std::string("\x1b[2J"), std::string("\xff"), std::string(257, 'x')}) {
    const Outcome named = headrace({"worker", model, "--join", "127.0.0.1:9", "--name", name});
    CHECK(named.status == 2);
    CHECK(named.one_error("--name"));
  }
  const Outcome bad = headrace({"worker", test_model("bad/empty.gguf"), "--join", "127.0.0.1:9"});
  CHECK(bad.status == 1);
  CHECK(bad.one_error("empty.gguf"));
}

TEST_CASE("an address for KV that others cannot reach is said at once") {
  const auto said = [](std::vector<std::string> more) {
    std::vector<std::string> words{"worker", test_model("bad/empty.gguf")};
    words.insert(words.end(), more.begin(), more.end());
    return headrace(words).err;
  };
  const std::string mesh = "127.0.0.1:9";
  CHECK(said({"--join", mesh, "--kv-advertise", "no.such.host.invalid:7402"})
            .find("WARNING: --kv-advertise no.such.host.invalid:7402") != std::string::npos);
  CHECK(said({"--join", "192.0.2.1:9"}).find("WARNING: --kv 127.0.0.1:0 is on loopback") !=
        std::string::npos);
  CHECK(said({"--join", "192.0.2.1:9", "--role", "prefill"}).find("WARNING") == std::string::npos);
  CHECK(said({"--join", mesh, "--kv-advertise", "127.0.0.1:7402"}).find("WARNING") ==
        std::string::npos);
  CHECK(said({"--join", mesh}).find("WARNING") == std::string::npos);
  const Outcome all = headrace({"worker", "m", "--join", mesh, "--kv-advertise", "0.0.0.0:7402"});
  CHECK(all.status == 2);
  CHECK(all.one_error("--kv-advertise: '0.0.0.0:7402' is no address that others can reach"));
}

}  // namespace
}  // namespace headrace::cli
