// Answers that outlive their connection: protocol/client_stream.cc.
#include <doctest/doctest.h>

#include "tests/coordinator/cut_proxy.h"
#include "tests/coordinator/edge.h"

namespace headrace::client {
using coordinator::fakes::CutProxy;
using coordinator::fakes::Edge;
namespace {

constexpr uint32_t kTokens = 300;

GenerateRequest endless(bool resumable) {
  GenerateRequest request;
  request.prompt = "*";
  request.max_tokens = kTokens;
  request.resumable = resumable;
  return request;
}

}  // namespace

TEST_CASE("a cut connection is a pause: each position comes once, in order") {
  Edge edge;
  REQUIRE(edge.ready(*edge.connect()));
  CutProxy proxy(edge.gateway->endpoint());
  auto c = Client::connect(proxy.endpoint());
  REQUIRE(c);
  uint32_t next = 0;
  int cuts = 0;
  auto g = (*c)->generate(endless(true), [&](const Chunk& chunk) {
    CHECK(chunk.position == next);
    next += static_cast<uint32_t>(chunk.ids.size());
    if (next > 50u * static_cast<uint32_t>(cuts + 1) && cuts < 4) {
      ++cuts;
      proxy.cut();
      std::this_thread::sleep_for(20ms);  // the rest of what is under way is lost
    }
  });
  CHECK(g->request_id() != RequestId{});
  const auto end = g->wait();
  REQUIRE(end);
  CHECK(next == kTokens);
  CHECK(cuts == 4);
  CHECK(end->text == std::string(kTokens, 'x') + ".");
  CHECK(end->ids.size() == kTokens);
  CHECK(end->finish == Finish::kLength);
  CHECK(proxy.accepted() > 1);
  CHECK((*c)->status());  // over the new connection
}

TEST_CASE("without being resumable a cut is the end") {
  Edge edge;
  REQUIRE(edge.ready(*edge.connect()));
  CutProxy proxy(edge.gateway->endpoint());
  auto c = Client::connect(proxy.endpoint());
  REQUIRE(c);
  auto g = (*c)->generate(endless(false), [&](const Chunk&) {
    proxy.cut();
    std::this_thread::sleep_for(20ms);
  });
  const auto end = g->wait();
  REQUIRE_FALSE(end);
  CHECK(end.error().code == Errc::kDisconnected);
}

TEST_CASE("it tries again while the coordinator cannot be reached, and cancels then as ever") {
  Edge edge;
  REQUIRE(edge.ready(*edge.connect()));
  CutProxy proxy(edge.gateway->endpoint());
  auto c = Client::connect(proxy.endpoint());
  REQUIRE(c);
  GenerateRequest request;
  request.prompt = "~";
  request.resumable = true;
  auto g = (*c)->generate(std::move(request), {});
  REQUIRE(Edge::eventually([&] { return edge.worker->prepares == 1; }));
  proxy.refuse(true);
  proxy.cut();
  std::this_thread::sleep_for(300ms);
  proxy.refuse(false);
  REQUIRE(Edge::eventually([&] { return proxy.accepted() >= 2; }));
  CHECK(edge.worker->cancels == 0);
  g->cancel();
  CHECK(g->wait().error().code == Errc::kCancelled);
  CHECK(Edge::eventually([&] { return edge.worker->cancels == 1; }));
}

}  // namespace headrace::client
