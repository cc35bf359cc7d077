#include "coordinator/scrape_targets.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headrace::coordinator {
namespace {

struct Rig {
  ScrapeTargets targets;
  ClusterStatus status;
  Instant now{};

  void join(uint64_t id, uint16_t port, const std::string& name) {
    WorkerStatus w;
    w.id = WorkerId{id};
    w.name = name;
    w.metrics = {"127.0.0.1", port};
    status.workers.push_back(w);
    sweep();
  }
  void leave(uint64_t id) {
    std::erase_if(status.workers, [&](const auto& w) { return w.id == WorkerId{id}; });
  }
  void lose(uint64_t id) {
    targets.lost(WorkerId{id}, now);
    leave(id);
    sweep();
  }
  void sweep(Duration later = 100ms) {
    now += later;
    targets.status(status, now);
  }
  // Names with ports: "a:1".
  std::vector<std::string> seen() const {
    std::vector<std::string> out;
    for (const auto& target : nlohmann::json::parse(targets.json())) {
      const std::string at = target["targets"][0], name = target["labels"]["worker"];
      out.push_back(name + at.substr(at.rfind(':')));
    }
    return out;
  }
};
using Names = std::vector<std::string>;

TEST_CASE("all that show metrics are targets, names are escaped") {
  Rig rig;
  CHECK(rig.targets.json() == "[]");
  rig.status.metrics = {"::1", 8081};
  rig.join(1, 0, "mute");
  rig.join(2, 8082, "de\"code\n");
  const auto list = nlohmann::json::parse(rig.targets.json());
  REQUIRE(list.size() == 2);
  CHECK(list[0]["targets"][0] == "[::1]:8081");
  CHECK(list[0]["labels"]["component"] == "coordinator");
  CHECK(list[1]["targets"][0] == "127.0.0.1:8082");
  CHECK(list[1]["labels"]["component"] == "worker");
  CHECK(list[1]["labels"]["worker"] == "de\"code\n");
}

TEST_CASE("a lost worker stays for a while, one that left does not") {
  Rig rig;
  rig.join(1, 1, "a");
  rig.join(2, 2, "b");
  rig.join(3, 0, "mute");
  rig.leave(1);
  rig.sweep();
  CHECK(rig.seen() == Names{"b:2"});
  rig.lose(2);
  rig.lose(3);
  rig.lose(4);  // never heard of
  CHECK(rig.seen() == Names{"b:2"});
  rig.sweep(ScrapeTargets::kLostFor - 1s);
  CHECK(rig.seen() == Names{"b:2"});
  rig.sweep(2s);
  CHECK(rig.seen().empty());
}

TEST_CASE("one that comes back with its address or name takes the place of the lost one") {
  Rig rig;
  for (const uint16_t i : {1, 2, 3}) rig.join(i, i, "decode");
  for (const uint64_t i : {1, 2, 3}) rig.lose(i);
  CHECK(rig.seen() == Names{"decode:1", "decode:2", "decode:3"});
  rig.join(4, 2, "renamed");  // by its address
  CHECK(rig.seen() == Names{"renamed:2", "decode:1", "decode:3"});
  rig.join(5, 9, "decode");  // by its name: one for one
  CHECK(rig.seen() == Names{"renamed:2", "decode:9", "decode:3"});
  rig.sweep();
  CHECK(rig.seen() == Names{"renamed:2", "decode:9", "decode:3"});  // it joined once
  rig.join(6, 10, "other");
  CHECK(rig.seen() == Names{"renamed:2", "decode:9", "other:10", "decode:3"});
}

TEST_CASE("the latest lost ones are remembered, so many and no more") {
  Rig rig;
  const uint16_t count = ScrapeTargets::kLostMax + 5;
  for (uint16_t i = 1; i <= count; ++i) {
    rig.join(i, i, "w" + std::to_string(i));
    rig.lose(i);
  }
  const Names seen = rig.seen();
  REQUIRE(seen.size() == ScrapeTargets::kLostMax);
  CHECK(seen.front() == "w6:6");
  CHECK(seen.back() == "w" + std::to_string(count) + ":" + std::to_string(count));
}

}  // namespace
}  // namespace headrace::coordinator
