#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "tests/worker/handoff_rig.h"

namespace headrace::worker {

// A sender that says exactly what the test wants.
struct RawSender {
  explicit RawSender(HandoffRig& r) : rig(r), strand(r.p->make_strand()) {
    rig.p->network().dial(rig.receiver->endpoint(), 1s, {}, strand, [this](auto result) {
      link = std::move(*result);
      link->start(
          [this](const Bytes& bytes) {
            const auto frame = decode_handoff(bytes);
            if (const auto* v = std::get_if<handoff::Verdict>(&*frame)) verdict = v->status;
            if (const auto* a = std::get_if<handoff::Alive>(&*frame)) taken = a->count;
            acked = acked || std::holds_alternative<handoff::HelloAck>(*frame);
          },
          [this](const Status&) { closed = true; });
    });
    rig.world.run_while([&] { return !link; }, 1s);
  }
  void send(const handoff::Frame& frame) { send_bytes(encode_handoff(frame)); }
  void send_bytes(Bytes bytes) {
    strand->post([this, b = std::move(bytes)] { link->send(b); });
    rig.world.run_for(10ms);
  }
  void hello(const ReceiveGrant& g, const std::function<void(handoff::Hello&)>& change = {},
             HandoffKey key = HandoffRig::kKey) {
    handoff::Hello h;
    h.transfer = g.transfer;
    h.attempt = g.attempt;
    h.prefill = {11, 12};
    h.decode = g.decode;
    h.layout = HandoffRig::kLayout;
    h.tokens = g.tokens;
    if (change) change(h);
    h.mac = hello_mac(h, key);
    send(h);
  }

  HandoffRig& rig;
  std::shared_ptr<Strand> strand;
  std::unique_ptr<Link> link;
  std::optional<Status> verdict;
  std::optional<uint32_t> taken;  // as the last sign of life said
  bool acked = false;
  bool closed = false;
};

}  // namespace headrace::worker
