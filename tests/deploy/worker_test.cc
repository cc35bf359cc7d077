#include <doctest/doctest.h>

#include "tests/deploy/headrace.h"

namespace headrace::cli {
namespace {

TEST_CASE("a worker needs a model, a mesh, and a word for an open KV channel") {
  const std::string model = test_model("script/base.gguf");
  CHECK(headrace({"worker", model}).one_error("--join"));
  CHECK(headrace({"worker", "--join", "127.0.0.1:9"}).one_error("MODEL"));
  const Outcome open = headrace({"worker", model, "--join", "127.0.0.1:9", "--kv", "0.0.0.0:0"});
  CHECK(open.status == 1);
  CHECK(open.one_error("--insecure-mesh"));
  const Outcome bad = headrace({"worker", test_model("bad/empty.gguf"), "--join", "127.0.0.1:9"});
  CHECK(bad.status == 1);
  CHECK(bad.one_error("empty.gguf"));
}

}  // namespace
}  // namespace headrace::cli
