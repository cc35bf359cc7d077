#include "tests/sim/nccl_fabric.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace::sim {

using worker::CommName;
using worker::CommNo;
using worker::LaneEnd;
using worker::NcclId;

void NcclFabric::violation(std::string what) {
  world.note("VIOLATION " + what);
  if (wrong.empty()) wrong = std::move(what);
}

FakeNccl::FakeNccl(NcclFabric& fabric, std::shared_ptr<Strand> strand, uint32_t version,
                   Memory memory)
    : fabric_(fabric),
      strand_(std::move(strand)),
      version_(version),
      memory_(std::move(memory)),
      self_(std::make_shared<FakeNccl*>(this)) {}

FakeNccl::~FakeNccl() {
  for (auto& [id, meeting] : fabric_.meetings) {
    for (auto& [end, e] : meeting.ends) {
      if (e.driver == this) e.driver = nullptr;
    }
  }
}

size_t FakeNccl::unused_ids() const { return unused_.size(); }

Duration FakeNccl::aborting() const {
  Duration longest{};
  for (const auto& [no, comm] : comms_) {
    if (comm.aborting != Instant{}) {
      longest = std::max(longest, fabric_.world.now() - comm.aborting);
    }
  }
  return longest;
}

void FakeNccl::post(Done done, Status status) {
  strand_->post([done = std::move(done), status = std::move(status)] { done(status); });
}

void FakeNccl::later(Duration least, Duration most, std::function<void()> what) {
  fabric_.world.at(fabric_.world.draw(least, most),
                   [weak = std::weak_ptr(self_), what = std::move(what)] {
                     if (weak.lock()) what();
                   });
}

void FakeNccl::mint(std::function<void(Result<NcclId>)> done) {
  if (faults.hang_mint) return mints_.push_back(std::move(done));
  if (faults.fail_mint) {
    return strand_->post([done] { done(error(Errc::kInternal, "no id")); });
  }
  NcclId id{};
  const uint64_t number = ++fabric_.minted;
  std::memcpy(id.data(), &number, sizeof number);
  fabric_.meetings[id].minter = this;
  ++minted_;
  strand_->post([this, done, id] {
    unused_.insert(id);
    done(id);
  });
}

void FakeNccl::open(CommNo no, const CommName& name, const NcclId& id, LaneEnd end, Done done) {
  const auto it = fabric_.meetings.find(id);
  if (it == fabric_.meetings.end() || comms_.contains(no)) {
    return fabric_.violation("a communicator opened with an id that nobody minted, or twice");
  }
  comms_[no] = {id, end, done, faults.hang_init, false, {}};
  if (faults.fail_init) return post(done, error(Errc::kInternal, "init failed"));
  NcclFabric::Meeting& meeting = it->second;
  // A rank that comes twice is not let in: as in the real one it waits for ever.
  if (meeting.ends.contains(end)) return;
  meeting.ends[end] = {this, no, name};
  if (meeting.ends.size() < 2) return;
  for (const auto& [e, other] : meeting.ends) {
    if (!(other.name == name)) fabric_.violation("two ends of one communicator name it otherwise");
  }
  later(1ms, 20ms, [this, id] { connect(fabric_.meetings[id]); });
}

void FakeNccl::connect(NcclFabric::Meeting& meeting) {
  for (const auto& [e, end] : meeting.ends) {
    if (!end.driver || end.driver->dead_) return;
    const auto comm = end.driver->comms_.find(end.comm);
    if (comm == end.driver->comms_.end() || comm->second.hung) return;
    if (comm->second.aborting != Instant{}) return;
  }
  meeting.connected = true;
  ++fabric_.connected;
  for (const auto& [e, end] : meeting.ends) {
    Comm& comm = end.driver->comms_.at(end.comm);
    comm.connected = true;
    if (meeting.minter == end.driver) end.driver->unused_.erase(comm.id);
    end.driver->post(comm.opened, {});
  }
}

void FakeNccl::send(CommNo comm, std::span<const std::byte> from, Done done) {
  launch({comm, true, const_cast<std::byte*>(from.data()), from.size(), std::move(done), false});
}

void FakeNccl::receive(CommNo comm, std::span<std::byte> to, Done done) {
  launch({comm, false, to.data(), to.size(), std::move(done), false});
}

void FakeNccl::launch(Op op) {
  const auto comm = comms_.find(op.comm);
  if (comm == comms_.end() || !comm->second.connected || comm->second.aborting != Instant{}) {
    return fabric_.violation("a launch on a communicator that is not open");
  }
  if (faults.fail_moves) return post(op.done, error(Errc::kInternal, "launch failed"));
  touch(op);
  queue_.push_back(std::move(op));
  nudge();
}

FakeNccl* FakeNccl::peer_of(CommNo no, CommNo* theirs) const {
  const auto comm = comms_.find(no);
  if (comm == comms_.end()) return nullptr;
  for (const auto& [end, e] : fabric_.meetings[comm->second.id].ends) {
    if (end == comm->second.end) continue;
    *theirs = e.comm;
    return e.driver;
  }
  return nullptr;
}

// The heads of two devices' queues meet.
void FakeNccl::nudge() {
  if (!faults.hang_mint) {
    for (auto& done : std::exchange(mints_, {})) mint(std::move(done));
  }
  if (queue_.empty() || queue_.front().moving) return;
  const Op& mine = queue_.front();
  CommNo theirs{};
  FakeNccl* peer = peer_of(mine.comm, &theirs);
  if (!peer || dead_ || peer->dead_ || peer->queue_.empty() || faults.hang_moves ||
      peer->faults.hang_moves)
    return;
  const Op& other = peer->queue_.front();
  if (other.comm != theirs || other.moving || other.out == mine.out) return;
  start(mine.out ? *this : *peer, mine.out ? *peer : *this);
}

void FakeNccl::start(FakeNccl& sender, FakeNccl& receiver) {
  Op& from = sender.queue_.front();
  Op& to = receiver.queue_.front();
  if (from.bytes != to.bytes) {
    return sender.fabric_.violation("a receive of another size than its send");
  }
  from.moving = to.moving = true;
  const uint64_t move = ++receiver.moves_;
  sender.later(20us, 2ms, [&sender, weak = std::weak_ptr(receiver.self_), move] {
    if (auto self = weak.lock()) finish(sender, **self, move);
  });
}

void FakeNccl::finish(FakeNccl& sender, FakeNccl& receiver, uint64_t move) {
  if (sender.dead_ || receiver.dead_) return;
  if (receiver.moves_ != move || receiver.queue_.empty() || sender.queue_.empty()) return;
  if (!receiver.queue_.front().moving || !sender.queue_.front().moving) return;
  const Op from = std::move(sender.queue_.front());
  const Op to = std::move(receiver.queue_.front());
  sender.queue_.pop_front();
  receiver.queue_.pop_front();
  sender.touch(from);
  receiver.touch(to);
  ++sender.fabric_.moved;
  if (sender.fabric_.world.hits(receiver.faults.lie_one_in)) {
    ++sender.fabric_.lies;
    const std::vector<std::byte> bytes(from.memory, from.memory + from.bytes);
    receiver.later(1ms, 50ms, [to, bytes] { std::copy(bytes.begin(), bytes.end(), to.memory); });
  } else {
    std::copy(from.memory, from.memory + from.bytes, to.memory);
  }
  sender.tell_moved(from.done);
  receiver.tell_moved(to.done);
  sender.nudge();
  receiver.nudge();
}

// Each end sees it when it looks.
void FakeNccl::tell_moved(const Done& done) {
  const Instant now = fabric_.world.now();
  told_ = std::max(told_ + 1ns, now + fabric_.world.draw(0ms, 3ms));
  later(told_ - now, told_ - now, [this, done] { post(done, {}); });
}

void FakeNccl::touch(const Op& op) {
  if (memory_(op.memory)) return;
  fabric_.violation(op.out ? "a slot is sent from after it was freed"
                           : "a slot is received into after it was freed");
}

void FakeNccl::abort(CommNo no, Done done) {
  const auto it = comms_.find(no);
  if (it == comms_.end() || it->second.aborting != Instant{}) {
    return fabric_.violation("an abort of what is not open");
  }
  it->second.aborting = fabric_.world.now();
  if (faults.hang_abort) return;
  if (faults.fail_abort) return post(done, error(Errc::kInternal, "it cannot be aborted"));
  later(100us, 30ms, [this, no, done] {
    if (dead_) return;
    // Until now it may have read and written.
    for (const Op& op : queue_) {
      if (op.comm == no) touch(op);
    }
    const bool moving = !queue_.empty() && queue_.front().comm == no && queue_.front().moving;
    CommNo theirs{};
    FakeNccl* peer = peer_of(no, &theirs);
    std::erase_if(queue_, [&](const Op& op) { return op.comm == no; });
    if (moving) ++moves_;
    if (moving && peer && !peer->queue_.empty() && peer->queue_.front().comm == theirs) {
      peer->queue_.front().moving = false;  // and hangs
      ++peer->moves_;
    }
    for (auto& [end, e] : fabric_.meetings[comms_.at(no).id].ends) {
      if (e.driver == this) e.driver = nullptr;
    }
    comms_.erase(no);
    post(done, {});
    nudge();
  });
}

}  // namespace headrace::sim
