#include "worker/handoff_sender.h"

#include <doctest/doctest.h>

#include "tests/worker/handoff_rig.h"

namespace headrace::worker {
namespace {

TEST_CASE("blocks go out in runs while later ones are computed, and arrive as they were") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(70);  // 5 blocks
  rig.receiver->expect(g);
  rig.dial(rig.job(g));
  rig.push({3, 1}, false);
  rig.world.run_for(50ms);
  CHECK(rig.began.size() == 1);
  CHECK(rig.arrived(3, 0));
  CHECK(rig.arrived(1, 2));
  CHECK(!rig.done.has_value());
  rig.push({7}, false);
  rig.push({8, 9}, true);
  rig.world.run_for(50ms);
  REQUIRE(rig.done.has_value());
  CHECK(rig.done->ok());
  CHECK(rig.ended.at(g.transfer).ok());
  CHECK(rig.arrived(7, 4));
  CHECK(rig.arrived(8, 6));
  CHECK(rig.arrived(9, 8));
  CHECK(rig.sender->bytes_sent() == 5 * HandoffRig::kBlockBytes);
  CHECK(rig.receiver->bytes_received() == 5 * HandoffRig::kBlockBytes);
}

TEST_CASE("no more than the window waits in the link") {
  HandoffRig rig;
  rig.options.window_bytes = 700;
  const ReceiveGrant g = rig.grant(16 * 16);
  rig.receiver->expect(g);
  rig.dial(rig.job(g));
  rig.world.run_for(50ms);
  std::vector<uint32_t> all(16);
  for (uint32_t i = 0; i < 16; ++i) all[i] = i;
  rig.push(all, true);
  rig.world.run_for(100us);  // less than a frame needs to arrive
  CHECK(rig.sender->bytes_sent() <= 1300);
  rig.world.run_for(2s);
  REQUIRE(rig.done.has_value());
  CHECK(rig.done->ok());
}

TEST_CASE("only the blocks that D lacks are sent") {
  HandoffRig rig;
  ReceiveGrant g = rig.grant(70);  // 5 blocks
  g.first_block = 3;
  g.blocks.erase(g.blocks.begin(), g.blocks.begin() + 3);
  rig.receiver->expect(g);
  rig.dial(rig.job(g));
  rig.push({8}, false);
  rig.push({9}, true);
  rig.world.run_for(50ms);
  REQUIRE(rig.done.has_value());
  CHECK(rig.done->ok());
  CHECK(rig.ended.at(g.transfer).ok());
  CHECK(rig.arrived(8, 6));
  CHECK(rig.arrived(9, 8));
  CHECK(rig.sender->bytes_sent() == 2 * HandoffRig::kBlockBytes);
}

TEST_CASE("a sender with another first block than granted is refused") {
  HandoffRig rig;
  ReceiveGrant g = rig.grant(70);
  rig.receiver->expect(g);
  SendJob job = rig.job(g);
  job.grant.first_block = 1;
  rig.dial(job);
  rig.world.run_for(50ms);
  REQUIRE(rig.done.has_value());
  CHECK(rig.done->message.find("first block") != std::string::npos);
}

TEST_CASE("nobody there, nobody answering, nobody living: each wait ends with its reason") {
  SUBCASE("refused") {
    HandoffRig rig;
    SendJob job = rig.job(rig.grant(16));
    job.grant.endpoint.port = 1;
    rig.dial(job);
    rig.world.run_for(2s);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->code == Errc::kUnavailable);
  }
  SUBCASE("vanished") {
    HandoffRig rig;
    const SendJob job = rig.job(rig.grant(16));
    rig.world.crash(*rig.d, sim::Death::kSilent);
    rig.dial(job);
    rig.world.run_for(1500ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->code == Errc::kDeadline);
  }
  SUBCASE("silent after hello") {
    HandoffRig rig;
    const ReceiveGrant g = rig.grant(16);
    rig.receiver->expect(g);
    rig.dial(rig.job(g));
    rig.world.run_for(1s);
    rig.sweeping_receiver = false;  // no sign of life
    rig.world.run_for(2500ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->message.find("silent") != std::string::npos);
  }
  SUBCASE("a listener that never speaks") {
    HandoffRig rig;
    std::vector<std::unique_ptr<Link>> kept;
    auto mute = rig.d->network().listen({"d", 99}, {}, rig.d_strand,
                                        [&](auto link) { kept.push_back(std::move(link)); });
    SendJob job = rig.job(rig.grant(16));
    job.grant.endpoint = (*mute)->endpoint();
    rig.dial(job);
    rig.world.run_for(1500ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->message.find("hello") != std::string::npos);
  }
}

TEST_CASE("a link that takes no bytes, or too few in all, ends it with the limit that was passed") {
  HandoffRig rig;
  rig.options.silence = 60s;  // D hears nothing of P meanwhile
  rig.receiver.reset();
  rig.open();
  const ReceiveGrant g = rig.grant(32 * HandoffRig::kBlockTokens);
  rig.receiver->expect(g);
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < HandoffRig::kBlocks; ++i) all.push_back(i);
  rig.options.window_bytes = 300;
  rig.options.stall = 2s;
  rig.options.whole = 3s;
  rig.dial(rig.job(g));
  rig.world.run_for(50ms);
  SUBCASE("none") {
    rig.world.hold("p", "d", 60s);
    rig.push(all, true);
    rig.world.run_for(1800ms);
    CHECK(!rig.done.has_value());
    rig.world.run_for(500ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->code == Errc::kDeadline);
    CHECK(rig.done->message.find("takes no bytes") != std::string::npos);
  }
  SUBCASE("few") {
    rig.world.hold("p", "d", 1s);
    rig.push(all, true);
    for (int i = 0; i < 3 && !rig.done; ++i) {
      CHECK(!rig.done.has_value());
      rig.world.run_for(1s + 300us);
      rig.world.hold("p", "d", 1s);
    }
    rig.world.run_for(500ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->code == Errc::kDeadline);
    CHECK(rig.done->message.find("not all KV") != std::string::npos);
  }
}

TEST_CASE("signs of life keep both sides patient while P computes") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(32);
  rig.receiver->expect(g);
  rig.dial(rig.job(g));
  rig.push({0}, false);
  rig.world.run_for(20s);
  CHECK(!rig.done.has_value());
  CHECK(rig.ended.empty());
  rig.push({1}, true);
  rig.world.run_for(100ms);
  REQUIRE(rig.done.has_value());
  CHECK(rig.done->ok());
}

// A D that takes the hello and then says what the test wants.
struct RawReceiver {
  explicit RawReceiver(HandoffRig& r) : rig(r) {
    auto opened = rig.d->network().listen({"d", 99}, {}, rig.d_strand, [this](auto accepted) {
      link = std::move(accepted);
      link->start(
          [this](const Bytes& said) {
            const auto frame = decode_handoff(said);
            if (!frame) return;
            committed = committed || std::holds_alternative<handoff::Commit>(*frame);
            const auto* hello = std::get_if<handoff::Hello>(&*frame);
            if (hello == nullptr) return;
            handoff::HelloAck ack;
            ack.mac = ack_mac(*hello, ack, HandoffRig::kKey);
            link->send(encode_handoff(ack));
          },
          [](const Status&) {});
    });
    door = std::move(*opened);
    SendJob job = rig.job(rig.grant(16));
    job.grant.endpoint = door->endpoint();
    rig.dial(job);
    rig.push({0}, true);
    rig.world.run_for(100ms);
    REQUIRE(committed);
  }
  // Says each half second how much has come, until it is over; seconds that it took.
  double say(const std::function<uint32_t(uint32_t)>& kib, double most) {
    const Instant from = rig.world.now();
    const auto passed = [&] {
      return std::chrono::duration<double>(rig.world.now() - from).count();
    };
    for (uint32_t i = 0; !rig.done && passed() < most; ++i) {
      send(handoff::Alive{kib(i)});
      rig.world.run_for(500ms);
    }
    return passed();
  }
  void send(const handoff::Frame& frame) {
    rig.d_strand->post([this, bytes = encode_handoff(frame)] { link->send(bytes); });
  }
  HandoffRig& rig;
  std::unique_ptr<Listener> door;
  std::unique_ptr<Link> link;
  bool committed = false;
};

TEST_CASE("what was sent may be on its way for long: the verdict is due when no more of it comes") {
  HandoffRig rig;
  RawReceiver d(rig);
  SUBCASE("it comes, and is right") {
    CHECK(d.say([](uint32_t i) { return 100 + i; }, 10) >= 10);
    d.send(handoff::Verdict{});
    rig.world.run_for(50ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->ok());
  }
  SUBCASE("it has come, and nothing is said of it") {
    CHECK(d.say([](uint32_t) { return 100; }, 10) <= 3);
    CHECK(rig.done->message.find("no verdict") != std::string::npos);
  }
  SUBCASE("it comes for ever") {
    const double took = d.say([](uint32_t i) { return 100 + i; }, 60);
    CHECK(took >= 29);
    CHECK(took <= 31);
    CHECK(rig.done->message.find("no verdict") != std::string::npos);
  }
}

TEST_CASE("a frame that is not D's to send ends it") {
  for (const handoff::Frame& frame :
       {handoff::Frame(handoff::Verdict{}), handoff::Frame(handoff::Commit{}),
        handoff::Frame(handoff::HelloAck{}), handoff::Frame(handoff::SlotPosted{}),
        handoff::Frame(handoff::LaneNote{})}) {
    HandoffRig rig;
    std::vector<std::shared_ptr<Link>> kept;
    auto door = rig.d->network().listen({"d", 99}, {}, rig.d_strand, [&](auto link) {
      const std::shared_ptr<Link> l = std::move(link);
      kept.push_back(l);
      l->start(
          [l = l.get(), &frame](const Bytes& said) {
            const auto heard = decode_handoff(said);
            const auto* hello = heard ? std::get_if<handoff::Hello>(&*heard) : nullptr;
            if (hello == nullptr) return;
            handoff::HelloAck ack;
            ack.mac = ack_mac(*hello, ack, HandoffRig::kKey);
            l->send(encode_handoff(ack));
            l->send(encode_handoff(frame));
          },
          [](const Status&) {});
    });
    SendJob job = rig.job(rig.grant(16));
    job.grant.endpoint = (*door)->endpoint();
    rig.dial(job);
    rig.world.run_for(100ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->code == Errc::kDisconnected);  // to be tried elsewhere
  }
}

TEST_CASE("an answer to hello that is not signed, or takes a lane not offered, ends it") {
  for (const bool is_signed : {false, true}) {
    HandoffRig rig;
    std::vector<std::shared_ptr<Link>> kept;
    auto door = rig.d->network().listen({"d", 99}, {}, rig.d_strand, [&](auto link) {
      const std::shared_ptr<Link> l = std::move(link);
      kept.push_back(l);
      l->start(
          [l = l.get(), is_signed](const Bytes& said) {
            const auto heard = decode_handoff(said);
            handoff::HelloAck ack;
            if (is_signed) {
              ack.lane = {LaneKind::kNccl, 22809, 4096, 1, 2};
              ack.mac = ack_mac(std::get<handoff::Hello>(*heard), ack, HandoffRig::kKey);
            }
            l->send(encode_handoff(ack));
          },
          [](const Status&) {});
    });
    SendJob job = rig.job(rig.grant(16));
    job.grant.endpoint = (*door)->endpoint();
    rig.dial(job);
    rig.world.run_for(100ms);
    REQUIRE(rig.done.has_value());
    CHECK(rig.done->message.find(is_signed ? "not offered" : "not signed") != std::string::npos);
  }
}

TEST_CASE("a destroyed sender reads and reports nothing more") {
  HandoffRig rig;
  const ReceiveGrant g = rig.grant(64);
  rig.receiver->expect(g);
  rig.dial(rig.job(g));
  rig.push({0, 1}, false);
  rig.world.run_for(500us);
  rig.p_strand->post([&] { rig.sender.reset(); });
  rig.world.run_for(3s);
  CHECK(!rig.done.has_value());
  REQUIRE(rig.ended.contains(g.transfer));
  CHECK(rig.ended.at(g.transfer).code == Errc::kDisconnected);
}

}  // namespace
}  // namespace headrace::worker
