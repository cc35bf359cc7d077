#include "tests/sim/nccl_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace::sim {
namespace {

using worker::LaneEnd;
using worker::LaneEnding;
using worker::LaneKind;
using worker::LaneState;
using worker::LaneTerms;

constexpr uint32_t kRing = 3;
constexpr Duration kSilence = 1500ms;
constexpr Duration kWhole = 40s;  // a hand-off of these runs; far more than any wait of the lane's

struct HelloBody {
  Incarnation prefill;
  NcclTask task;
  LaneTerms terms;
};
struct SumBody {
  uint32_t slot = 0;
  uint64_t sum = 0;
};

template <class T>
Bytes to_bytes(const T& value) {
  Bytes bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
template <class T>
T from_bytes(const Bytes& frame) {
  T value{};
  if (frame.size() == sizeof(T) + 1) std::memcpy(&value, frame.data() + 1, sizeof(T));
  return value;
}

size_t bytes_of(uint32_t task, uint32_t slot) { return 16 + (task * 7 + slot * 13) % 48; }
std::byte byte_of(uint32_t task, uint32_t slot, size_t at) {
  return std::byte((task * 131 + slot * 31 + at * 7 + 1) & 0xFF);
}
uint64_t sum_of(std::span<const std::byte> bytes) {
  uint64_t sum = 14695981039346656037ull;
  for (const std::byte b : bytes) sum = (sum ^ uint64_t(b)) * 1099511628211ull;
  return sum;
}

}  // namespace

NcclPeer::NcclPeer(SimWorld& world, NcclFabric& fabric, const Setup& setup)
    : world_(world),
      fabric_(fabric),
      name_(setup.name),
      ended_(setup.ended),
      process_(world.spawn(setup.name)),
      strand_(process_.make_strand()),
      incarnation_{world.random().next() | 1, world.random().next()} {
  driver_ = std::make_unique<FakeNccl>(fabric, strand_, setup.version,
                                       [this](const std::byte* p) { return held_.contains(p); });
  worker::NcclOptions options = setup.options;
  options.device = world.random().next() | 1;
  pairs_ = std::make_unique<worker::NcclPairs>(strand_, *driver_, options);
  auto listener = process_.network().listen({name_, 7500}, {}, strand_, [this](auto link) {
    auto t = std::make_shared<Transfer>();
    t->end = LaneEnd::kDecode;
    on_link(t, std::move(link));
  });
  CHECK(listener.has_value());
  listener_ = std::move(*listener);
  strand_->post([this] { sweep(); });
}

void NcclPeer::die(bool silently) {
  driver_->die();
  world_.crash(process_, silently ? Death::kSilent : Death::kClosing);
}

NcclPeer::~NcclPeer() {
  if (process_.alive()) die(false);
  timer_.cancel();
  for (auto* list : {&transfers_, &over_}) {
    for (const Ptr& t : *list) {
      t->cancel.cancel();
      t->lane = nullptr;
      t->link = nullptr;
    }
  }
}

void NcclPeer::hand_off(const NcclTask& task, NcclPeer& to) {
  strand_->post([this, task, at = Endpoint{to.name(), 7500}, peer = to.incarnation()] {
    auto t = std::make_shared<Transfer>();
    t->task = task;
    t->peer = peer;
    t->made = t->heard = strand_->now();
    transfers_.push_back(t);
    process_.network().dial(at, 1s, {}, strand_, [this, t](auto link) {
      if (!link) return end(t, false, "no connection", LaneEnding::kCut);
      on_link(t, std::move(*link));
      t->terms = pairs_->offer(t->peer);
      say(t, 'H', to_bytes(HelloBody{incarnation_, t->task, t->terms}));
    });
    if (task.cancel_after > 0ms && !task.cancel_at_decode) {
      t->cancel = strand_->after(
          task.cancel_after, [this, t] { end(t, false, "cancelled", LaneEnding::kOver, true); });
    }
  });
}

void NcclPeer::on_link(const Ptr& t, std::unique_ptr<Link> link) {
  if (t->ended) return;  // cancelled while it was dialled
  t->link = std::move(link);
  t->heard = t->spoke = strand_->now();
  if (t->end == LaneEnd::kDecode) {
    t->made = t->heard;
    transfers_.push_back(t);
  }
  const std::weak_ptr weak = t;
  t->link->start(
      [this, weak](const Bytes& frame) {
        if (auto p = weak.lock()) on_frame(p, frame);
      },
      [this, weak](const Status& why) {
        const auto p = weak.lock();
        if (!p) return;
        p->cut = true;
        if (p->ended) {
          if (p->lane && p->lane->close(LaneEnding::kCut) != LaneState::kBusy) quiet(p);
        } else {
          end(p, false, "closed: " + why.message, LaneEnding::kCut);
        }
      });
}

void NcclPeer::on_frame(const Ptr& t, const Bytes& frame) {
  t->heard = strand_->now();
  switch (char(frame.at(0))) {
    case 'H':
      return on_hello(t, frame);
    case 'A':
      return t->ended ? void() : on_ack(t, frame);
    case 'N': {
      if (!t->lane) return;
      const Bytes note(frame.begin() + 1, frame.end());
      const auto decoded = worker::decode_nccl(note);
      if (decoded && std::holds_alternative<worker::nccl_note::Ready>(*decoded)) ++readies_;
      if (world_.tracing() && decoded) {
        world_.note(name_ + " hears note " + std::to_string(decoded->index()) + " of task " +
                    std::to_string(t->task.number));
      }
      const Status status = t->lane->heard(note);
      if (!status.ok() && !t->ended) end(t, false, "note: " + status.message);
      return;
    }
    case 'S':
      return t->ended ? void() : on_sum(t, frame);
    case 'T':  // all of it, over tcp
      if (t->ended) return;
      say(t, 'V');
      return end(t, true, "");
    case 'V':
      return t->ended ? void() : end(t, true, "");
    default:
      return;
  }
}

void NcclPeer::on_hello(const Ptr& t, const Bytes& frame) {
  const auto hello = from_bytes<HelloBody>(frame);
  t->task = hello.task;
  t->peer = hello.prefill;
  t->greeted = true;
  t->sums.resize(t->task.slots);
  t->arrived.resize(t->task.slots);
  t->terms = pairs_->answer(t->peer, hello.terms);
  if (t->task.cancel_after > 0ms && t->task.cancel_at_decode) {
    t->cancel = strand_->after(t->task.cancel_after,
                               [this, t] { end(t, false, "cancelled", LaneEnding::kOver, true); });
  }
  say(t, 'A', to_bytes(t->terms));
  if (t->terms.kind == LaneKind::kNccl) make_lane(t, hello.terms);
}

void NcclPeer::on_ack(const Ptr& t, const Bytes& frame) {
  const auto theirs = from_bytes<LaneTerms>(frame);
  if (const Status status = pairs_->agree(t->terms, theirs); !status.ok()) {
    return end(t, false, status.message);
  }
  t->terms.kind = theirs.kind;
  if (theirs.kind == LaneKind::kTcp) return say(t, 'T');
  make_lane(t, theirs);
}

void NcclPeer::make_lane(const Ptr& t, const LaneTerms& theirs) {
  const std::weak_ptr weak = t;
  const auto with = [weak](auto what) {
    if (const auto p = weak.lock()) what(p);
  };
  worker::PayloadLane::Host host;
  host.tell = [this, with](Bytes note) { with([&](const Ptr& p) { say(p, 'N', note); }); };
  host.moved = [this, with](uint32_t index, size_t bytes) {
    with([&](const Ptr& p) { on_moved(p, index, bytes); });
  };
  host.failed = [this, with](const Status& why) {
    with([&](const Ptr& p) {
      if (!p->ended) end(p, false, "lane: " + why.message);
    });
  };
  host.quiet = [this, with] { with([&](const Ptr& p) { quiet(p); }); };
  host.lost = [this, with](const Status&) { with([&](const Ptr& p) { quiet(p); }); };
  t->lane = pairs_->lane(t->end, t->peer, theirs, std::move(host));
  for (uint32_t i = 0; i < std::min(kRing, t->task.slots); ++i) {
    t->ring.push_back(take(64));
    fill(t);
  }
}

// Posts the next slot into the ring's place for it.
void NcclPeer::fill(const Ptr& t) {
  if (t->next >= t->task.slots || t->ended) return;
  const uint32_t slot = t->next++;
  std::vector<std::byte>& bytes = t->ring[slot % kRing]->bytes;
  if (t->end == LaneEnd::kDecode) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
    return t->lane->post({slot, bytes});
  }
  const size_t n = bytes_of(t->task.number, slot);
  for (size_t i = 0; i < n; ++i) bytes[i] = byte_of(t->task.number, slot, i);
  const auto sent = std::span(bytes).first(n);
  t->lane->post({slot, sent});
  say(t, 'S', to_bytes(SumBody{slot, sum_of(sent)}));
}

void NcclPeer::on_moved(const Ptr& t, uint32_t index, size_t bytes) {
  if (index != t->done++) fabric_.violation("slots moved out of order");
  if (t->end == LaneEnd::kPrefill) return fill(t);
  const std::vector<std::byte>& slot = t->ring[index % kRing]->bytes;
  t->arrived[index] = {true, sum_of(std::span(slot).first(bytes))};
  // What is handed on is what was verified.
  bool right = bytes == bytes_of(t->task.number, index);
  for (size_t i = 0; right && i < bytes; ++i) {
    right = slot[i] == byte_of(t->task.number, index, i);
  }
  check(t, index);
  if (t->ended) return;
  if (!right && t->sums[index].first) fabric_.violation("wrong bytes under a right sum");
  fill(t);
}

void NcclPeer::on_sum(const Ptr& t, const Bytes& frame) {
  const auto sum = from_bytes<SumBody>(frame);
  if (sum.slot >= t->sums.size()) return end(t, false, "a sum too many");
  t->sums[sum.slot] = {true, sum.sum};
  check(t, sum.slot);
}

void NcclPeer::check(const Ptr& t, uint32_t slot) {
  if (!t->sums[slot].first || !t->arrived[slot].first) return;
  if (t->sums[slot].second != t->arrived[slot].second) {
    return end(t, false, "a wrong sum", LaneEnding::kCorrupt);
  }
  const auto there = [](const auto& s) { return s.first; };
  if (!std::all_of(t->arrived.begin(), t->arrived.end(), there)) return;
  if (!std::all_of(t->sums.begin(), t->sums.end(), there)) return;
  say(t, 'V');
  end(t, true, "");
}

void NcclPeer::say(const Ptr& t, char kind, const Bytes& body) {
  if (!t->link || t->cut) return;
  Bytes frame;
  frame.reserve(1 + body.size());
  frame.push_back(std::byte(kind));
  frame.insert(frame.end(), body.begin(), body.end());
  t->spoke = strand_->now();
  t->link->send(std::move(frame));
}

void NcclPeer::end(const Ptr& t, bool ok, const std::string& why, LaneEnding how, bool cancelled) {
  if (t->ended) return;
  t->ended = true;
  if (ended_ && (t->end == LaneEnd::kPrefill || t->greeted)) {
    ended_(t->task, t->end, {t->lane != nullptr, ok, cancelled, why});
  }
  if (!t->lane || t->lane->close(how) != LaneState::kBusy) quiet(t);
}

// Nothing uses its slots: the memory goes back, and the channel is closed.
void NcclPeer::quiet(const Ptr& t) {
  const auto it = std::find(transfers_.begin(), transfers_.end(), t);
  if (it == transfers_.end()) return;
  transfers_.erase(it);
  if (!t->lane || t->lane->state() == LaneState::kQuiet) give_back(*t);
  if (t->link) t->link->close();
  t->cut = true;
  over_.push_back(t);  // we may be inside of its callbacks
}

void NcclPeer::sweep() {
  for (const Ptr& t : over_) t->cancel.cancel();
  over_.clear();
  pairs_->sweep();
  const Instant now = last_sweep_ = strand_->now();
  const std::vector<Ptr> all = transfers_;
  for (const Ptr& t : all) {
    if (t->cut || !t->link) continue;
    if (now - t->spoke >= 250ms) say(t, 'L');
    if (now - t->heard < kSilence) continue;
    t->cut = true;
    if (!t->ended) {
      end(t, false, "silence", LaneEnding::kCut);
    } else if (t->lane && t->lane->close(LaneEnding::kCut) != LaneState::kBusy) {
      quiet(t);
    }
  }
  for (const Ptr& t : all) {
    if (!t->ended && now - t->made > kWhole) {
      fabric_.violation(name_ + ": a hand-off that does not end");
    }
  }
  timer_ = strand_->after(100ms, [this] { sweep(); });
}

Duration NcclPeer::oldest() const {
  Duration most{};
  for (const Ptr& t : transfers_) most = std::max(most, world_.now() - t->made);
  return most;
}

std::shared_ptr<NcclPeer::Slot> NcclPeer::take(size_t bytes) {
  auto slot = std::make_shared<Slot>();
  slot->bytes.resize(bytes);
  held_[slot->bytes.data()] = slot;
  return slot;
}

void NcclPeer::give_back(Transfer& t) {
  for (const auto& slot : t.ring) {
    held_.erase(slot->bytes.data());
    freed_.push_back(slot);
  }
  t.ring.clear();
}

}  // namespace headrace::sim
