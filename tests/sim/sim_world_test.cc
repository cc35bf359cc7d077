#include "tests/sim/sim_world.h"

#include <doctest/doctest.h>

#include <optional>

#include "protocol/actor.h"

namespace headrace::sim {
namespace {

const Endpoint kHome{"sim", 7401};

Bytes bytes(size_t size, int fill = 1) { return Bytes(size, static_cast<std::byte>(fill)); }

// Accepts links and answers each frame with one of the same size; remembers what it saw.
struct Echo {
  explicit Echo(SimProcess& process, LinkLimits limits = {}) : strand(process.make_strand()) {
    auto opened = process.network().listen(kHome, limits, strand, [this](auto link) {
      auto* l = link.get();
      links.push_back(std::move(link));
      l->start(
          [this, l](Bytes frame) {
            sizes.push_back(frame.size());
            l->send(std::move(frame));
          },
          [this](Status why) { closed.push_back(why.message); });
    });
    REQUIRE(opened);
    listener = std::move(*opened);
  }
  std::shared_ptr<Strand> strand;
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<size_t> sizes;
  std::vector<std::string> closed;
};

// Dials, sends `frames` of growing size, counts what comes back.
struct Caller {
  Caller(SimProcess& process, size_t frames, LinkLimits limits = {}, Duration deadline = 1s)
      : strand(process.make_strand()) {
    process.network().dial(kHome, deadline, limits, strand, [this, frames](auto result) {
      if (!result) {
        failed = result.error();
        return;
      }
      link = std::move(*result);
      link->start([this](Bytes frame) { sizes.push_back(frame.size()); },
                  [this](Status why) { closed.push_back(why.message); });
      for (size_t i = 1; i <= frames; ++i) link->send(bytes(i));
    });
  }
  std::shared_ptr<Strand> strand;
  std::unique_ptr<Link> link;
  std::optional<Status> failed;
  std::vector<size_t> sizes;
  std::vector<std::string> closed;
};

// A whole little run: two callers, a crash in the middle. Returns the trace.
std::pair<uint64_t, std::string> story(uint64_t seed) {
  SimWorld world({.seed = seed});
  SimProcess& server = world.spawn("server");
  server.own(std::make_shared<Echo>(server));
  SimProcess& a = world.spawn("a");
  SimProcess& b = world.spawn("b");
  a.own(std::make_shared<Caller>(a, 20));
  b.own(std::make_shared<Caller>(b, 20));
  world.run_for(4ms);
  world.crash(server);
  CHECK(world.run_until_idle());
  return {world.trace_hash(), world.trace()};
}

TEST_CASE("equal seeds give equal runs, other seeds other ones") {
  const auto first = story(7);
  const auto again = story(7);
  CHECK(first.second == again.second);
  CHECK(first.first == again.first);
  size_t different = 0;
  for (uint64_t seed = 100; seed < 110; ++seed) different += story(seed).first != first.first;
  CHECK(different == 10);
}

TEST_CASE("time moves only as far as events and run_until say") {
  SimWorld world;
  const Instant start = world.now();
  std::vector<int> order;
  world.at(2s, [&] { order.push_back(2); });
  world.at(1s, [&] { order.push_back(1); });
  world.at(3s, [&] { order.push_back(3); });
  world.run_until(start + 2500ms);
  CHECK(order == std::vector{1, 2});
  CHECK(world.now() == start + 2500ms);
  CHECK(world.run_until_idle());
  CHECK(world.now() == start + 3s);
  CHECK_FALSE(world.step());
}

TEST_CASE("run_while stops at the condition, at its limit, or when nothing is left") {
  SimWorld world;
  int n = 0;
  for (int i = 1; i <= 10; ++i) world.at(i * 1s, [&] { ++n; });
  CHECK(world.run_while([&] { return n < 3; }, 10s));
  CHECK(n == 3);
  CHECK_FALSE(world.run_while([&] { return n < 10; }, 2s));
  CHECK(n == 5);
  CHECK_FALSE(world.run_while([&] { return n < 11; }, 100s));
}

TEST_CASE("tasks of a strand keep their order; strands interleave differently by seed") {
  const auto run = [](uint64_t seed) {
    SimWorld world({.seed = seed});
    SimProcess& p = world.spawn("p");
    auto a = p.make_strand();
    auto b = p.make_strand();
    std::string log;
    for (int i = 0; i < 10; ++i) {
      a->post([&, i] { log += static_cast<char>('0' + i); });
      b->post([&, i] { log += static_cast<char>('a' + i); });
    }
    world.run_until_idle();
    return log;
  };
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const std::string log = run(seed);
    seen.insert(log);
    std::string digits;
    std::string letters;
    for (char c : log) (c <= '9' ? digits : letters) += c;
    CHECK(digits == "0123456789");
    CHECK(letters == "abcdefghij");
  }
  CHECK(seen.size() > 1);
}

TEST_CASE("a timer fires once, not before its time; a cancelled one never") {
  SimWorld world;
  SimProcess& p = world.spawn("p");
  auto strand = p.make_strand();
  const Instant start = world.now();
  std::optional<Instant> fired;
  int never = 0;
  Timer kept = strand->after(10ms, [&] { fired = strand->now(); });
  Timer cancelled = strand->after(5ms, [&] { ++never; });
  Timer late = strand->after(20ms, [&] { ++never; });
  strand->post([&] { cancelled.cancel(); });
  world.at(20ms - 1us, [&] { late = Timer(); });
  {
    Timer dropped = strand->after(1ms, [&] { ++never; });
  }
  world.run_until_idle();
  REQUIRE(fired);
  CHECK(*fired >= start + 10ms);
  CHECK(*fired <= start + 10ms + world.options().timer_late_max);
  CHECK(never == 0);
}

TEST_CASE("a timer may be destroyed by its own task") {
  SimWorld world;
  auto strand = world.spawn("p").make_strand();
  Timer timer;
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds < 5) timer = strand->after(1ms, [&] { again(); });
  };
  timer = strand->after(1ms, [&] { again(); });
  world.run_until_idle();
  CHECK(rounds == 5);
}

TEST_CASE("nothing of a crashed process runs again") {
  SimWorld world;
  SimProcess& p = world.spawn("p");
  auto strand = p.make_strand();
  int ran = 0;
  auto guard = std::make_shared<int>(0);
  std::weak_ptr<int> held = guard;
  strand->post([&, g = std::move(guard)] { ++ran; });
  Timer timer = strand->after(1ms, [&] { ++ran; });
  world.crash(p);
  CHECK(held.expired());  // its tasks are freed with it
  strand->post([&] { ++ran; });
  Timer more = strand->after(1ms, [&] { ++ran; });
  world.run_until_idle();
  CHECK(ran == 0);
  CHECK_FALSE(p.alive());
}

TEST_CASE("a process may crash inside its own task") {
  SimWorld world;
  SimProcess& p = world.spawn("p");
  struct Object {
    ~Object() { ++*gone; }
    int* gone;
  };
  int gone = 0;
  int after = 0;
  auto object = std::make_shared<Object>();
  object->gone = &gone;
  p.own(std::move(object));
  auto strand = p.make_strand();
  strand->post([&] {
    world.crash(p);
    CHECK(gone == 0);  // not under our feet
  });
  strand->post([&] { ++after; });
  world.run_until_idle();
  CHECK(gone == 1);
  CHECK(after == 0);
}

TEST_CASE("owned objects die in reverse order") {
  SimWorld world;
  SimProcess& p = world.spawn("p");
  std::string log;
  for (char c : std::string("abc"))
    p.own(std::shared_ptr<void>(nullptr, [&log, c](void*) { log += c; }));
  world.crash(p);
  CHECK(log == "cba");
}

TEST_CASE("frames of a link arrive whole and in order, both ways") {
  SimWorld world({.seed = 3, .spike_one_in = 4});
  SimProcess& server = world.spawn("server");
  SimProcess& client = world.spawn("client");
  Echo echo(server);
  Caller caller(client, 50);
  REQUIRE(world.run_while([&] { return caller.sizes.size() < 50; }));
  for (size_t i = 0; i < 50; ++i) {
    CHECK(echo.sizes[i] == i + 1);
    CHECK(caller.sizes[i] == i + 1);
  }
  CHECK(caller.closed.empty());
}

TEST_CASE("the peer of a crashed process learns of it; what did not arrive is lost") {
  size_t cut_short = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimWorld world({.seed = seed});
    SimProcess& server = world.spawn("server");
    SimProcess& client = world.spawn("client");
    Echo echo(server);
    server.own(std::make_shared<Echo*>(&echo));
    Caller caller(client, 30);
    REQUIRE(world.run_while([&] { return caller.sizes.size() < 1; }));
    world.crash(server);
    CHECK(world.run_until_idle());
    REQUIRE(caller.closed.size() == 1);
    CHECK(caller.closed[0] == "server: connection lost");
    CHECK(echo.closed.empty());
    cut_short += caller.sizes.size() < 30;
    for (size_t i = 0; i < caller.sizes.size(); ++i) CHECK(caller.sizes[i] == i + 1);
  }
  CHECK(cut_short > 0);
}

TEST_CASE("a vanished process tells nobody, and dials to it run into their deadline") {
  SimWorld world;
  SimProcess& server = world.spawn("server");
  SimProcess& client = world.spawn("client");
  Echo echo(server);
  Caller caller(client, 1);
  REQUIRE(world.run_while([&] { return caller.sizes.empty(); }));
  world.crash(server, Death::kSilent);
  caller.link->send(bytes(9));
  const Instant before = world.now();
  Caller second(client, 1, {}, 300ms);
  CHECK(world.run_until_idle());
  CHECK(caller.closed.empty());
  CHECK(caller.sizes.size() == 1);
  REQUIRE(second.failed);
  CHECK(second.failed->code == Errc::kDeadline);
  CHECK(world.now() >= before + 300ms);
}

TEST_CASE("broken links end on both sides, both processes live") {
  SimWorld world;
  SimProcess& server = world.spawn("server");
  SimProcess& client = world.spawn("client");
  Echo echo(server);
  Caller caller(client, 1);
  REQUIRE(world.run_while([&] { return caller.sizes.empty(); }));
  world.break_links(server);
  CHECK(world.run_until_idle());
  CHECK(caller.closed.size() == 1);
  CHECK(echo.closed.size() == 1);
  Caller again(client, 2);
  CHECK(world.run_while([&] { return again.sizes.size() < 2; }));
}

TEST_CASE("a closed link delivers what was sent before, then the closing, once") {
  SimWorld world;
  SimProcess& server = world.spawn("server");
  SimProcess& client = world.spawn("client");
  Echo echo(server);
  Caller caller(client, 5);
  REQUIRE(world.run_while([&] { return !caller.link; }));
  caller.link->close();
  CHECK(world.run_until_idle());
  CHECK(echo.sizes.size() == 5);
  CHECK(echo.closed == std::vector<std::string>{"client closed the link"});
  CHECK(caller.closed.empty());  // no callback follows a close of one's own
}

TEST_CASE("a dial where nobody listens is refused; a port is given once") {
  SimWorld world;
  SimProcess& client = world.spawn("client");
  Caller nobody(client, 1);
  CHECK(world.run_until_idle());
  REQUIRE(nobody.failed);
  CHECK(nobody.failed->message == "cannot connect to sim:7401: connection refused");
  Echo echo(client);
  auto second = client.network().listen(kHome, {}, echo.strand, [](auto) {});
  REQUIRE_FALSE(second);
  CHECK(second.error().message == "cannot listen on sim:7401: address already in use");
  echo.listener = nullptr;
  CHECK(client.network().listen(kHome, {}, echo.strand, [](auto) {}));
  auto any = client.network().listen({"sim", 0}, {}, echo.strand, [](auto) {});
  REQUIRE(any);
  CHECK((*any)->endpoint().port != 0);
}

TEST_CASE("a restarted process listens where the dead one did, and keeps its files") {
  SimWorld world;
  SimProcess& first = world.spawn("server");
  first.own(std::make_shared<Echo>(first));
  CHECK(first.files().write("state/term", bytes(3)).ok());
  auto lock = first.files().lock("state/lock", 0s);
  REQUIRE(lock);
  SimProcess& neighbour = world.spawn("neighbour", "server");
  CHECK(neighbour.files().lock("state/lock", 0s).error().code == Errc::kDeadline);
  world.crash(first);
  CHECK_FALSE(first.files().read("state/term", 10));
  SimProcess& again = world.spawn("server");
  CHECK(again.files().read("state/term", 10).value() == bytes(3));
  CHECK(again.files().read("state/term", 2).error().code == Errc::kOverloaded);
  CHECK(again.files().read("state/other", 2).error().code == Errc::kNotFound);
  CHECK(again.files().lock("state/lock", 0s));
  Echo echo(again);
  SimProcess& client = world.spawn("client");
  Caller caller(client, 3);
  CHECK(world.run_while([&] { return caller.sizes.size() < 3; }));
}

TEST_CASE("frames and queues past their limits end the link, on both sides, with a reason") {
  SimWorld world;
  SimProcess& server = world.spawn("server");
  SimProcess& client = world.spawn("client");
  Echo echo(server);
  const LinkLimits small{.frame_bytes_max = 100, .unsent_bytes_max = 250};
  Caller caller(client, 0, small);
  REQUIRE(world.run_while([&] { return !caller.link; }));
  SUBCASE("a long frame") {
    caller.link->send(bytes(101));
    CHECK(caller.closed.empty());  // never from inside a call
    world.run_until_idle();
    CHECK(caller.closed ==
          std::vector<std::string>{"frame of 101 bytes for sim:7401, the limit is 100"});
    CHECK(echo.closed.size() == 1);
  }
  SUBCASE("too many frames") {
    for (int i = 0; i < 3; ++i) caller.link->send(bytes(100));
    CHECK(caller.closed.empty());
    world.run_until_idle();
    CHECK(caller.closed == std::vector<std::string>{
                               "sim:7401 does not keep up: more than 250 bytes wait to be sent"});
    CHECK(echo.closed.size() == 1);
  }
}

TEST_CASE("on_drained tells when the way is free again") {
  SimWorld world;
  SimProcess& server = world.spawn("server");
  SimProcess& client = world.spawn("client");
  Echo echo(server);
  Caller caller(client, 0);
  REQUIRE(world.run_while([&] { return !caller.link; }));
  int drained = 0;
  caller.link->on_drained(150, [&] {
    ++drained;
    CHECK(caller.link->unsent() <= 150);
  });
  for (int i = 0; i < 4; ++i) caller.link->send(bytes(100));
  CHECK(caller.link->unsent() == 400);
  CHECK(drained == 0);
  world.run_until_idle();
  CHECK(drained == 1);
  CHECK(caller.link->unsent() == 0);
}

// An actor of the real kind: tells itself on a timer, is told by others.
struct Counter : std::enable_shared_from_this<Counter> {
  struct Add {
    int n;
  };
  explicit Counter(std::shared_ptr<Strand> s) : strand(std::move(s)) {}
  void on(Add add) {
    sum += add.n;
    tick = strand->after(10ms, [this] { on(Add{1}); });
  }
  std::shared_ptr<Strand> strand;
  Timer tick;
  int sum = 0;
};

TEST_CASE("an actor is told through its Ref, also after it died") {
  SimWorld world;
  SimProcess& p = world.spawn("p");
  auto strand = p.make_strand();
  auto counter = std::make_shared<Counter>(strand);
  const Ref<Counter> ref(strand, counter);
  std::weak_ptr<Counter> weak = counter;
  p.own(std::move(counter));
  ref.tell(Counter::Add{5});
  world.run_for(55ms);
  CHECK(weak.lock()->sum >= 9);
  CHECK(weak.lock()->sum <= 10);
  world.crash(p);
  CHECK(weak.expired());
  ref.tell(Counter::Add{5});
  CHECK(world.run_until_idle());
}

TEST_CASE("the trace is a ring that names the seed") {
  SimWorld world({.seed = 42, .trace_max = 3});
  for (int i = 0; i < 10; ++i) world.note("line " + std::to_string(i));
  const std::string trace = world.trace();
  CHECK(trace.starts_with("seed 42\n"));
  CHECK(trace.find("line 6") == std::string::npos);
  CHECK(trace.find("line 9") != std::string::npos);
}

}  // namespace
}  // namespace headrace::sim
