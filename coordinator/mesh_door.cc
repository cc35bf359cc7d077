#include "coordinator/mesh_door.h"

#include <utility>

#include "protocol/check.h"
#include "protocol/codec.h"

namespace headrace::coordinator {

Result<Endpoint> MeshDoor::listen(Network& network, const Endpoint& at, Ref<WorkerEvents> events) {
  CHECK(!listener_);
  events_ = std::move(events);
  auto listener = network.listen(at, {.first_frame_bytes_max = kRegisterBytesMax}, strand_,
                                 [weak = weak_from_this()](std::unique_ptr<Link> link) {
                                   if (auto self = weak.lock()) self->accept(std::move(link));
                                 });
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  return listener_->endpoint();
}

void MeshDoor::accept(std::unique_ptr<Link> link) {
  if (peers_.size() >= kLinksMax) {
    ++counters_.turned_away;
    return;  // its end closes it
  }
  ++counters_.accepted;
  const WorkerId id{next_++};
  Peer& peer = peers_[id];
  peer.link = std::move(link);
  peer.register_by = strand_->after(kRegisterWithin, [this, id] {
    ++counters_.silent;
    break_off(id, error(Errc::kDeadline, "no Register in time"));
  });
  peer.link->start(
      [weak = weak_from_this(), id](const Bytes& frame) {
        if (auto self = weak.lock()) self->take_frame(id, frame);
      },
      [weak = weak_from_this(), id](Status why) {
        auto self = weak.lock();
        if (!self || !self->peers_.contains(id)) return;
        ++self->counters_.closed;
        self->break_off(id, std::move(why));
      });
}

void MeshDoor::take_frame(WorkerId id, const Bytes& frame) {
  auto it = peers_.find(id);
  if (it == peers_.end() || it->second.broken) return;
  Peer& peer = it->second;
  Result<ToCoordinator> message = decode_to_coordinator(frame);
  const auto* hello = message ? std::get_if<to_coordinator::Register>(&*message) : nullptr;
  if (!message || (!peer.registered && !hello)) {
    ++counters_.malformed;
    return break_off(
        id, message ? error(Errc::kInvalid, "the first message is no Register") : message.error());
  }
  if (peer.registered) return events_.tell(FromWorker{id, std::move(*message)});
  peer.registered = true;
  peer.register_by.cancel();
  events_.tell(WorkerJoined{id, std::move(std::get<to_coordinator::Register>(*message))});
}

// A link or timer must not end inside of its own callback.
void MeshDoor::break_off(WorkerId id, Status why) {
  peers_.at(id).broken = true;
  strand_->post([weak = weak_from_this(), id, why = std::move(why)]() mutable {
    if (auto self = weak.lock()) self->lose(id, std::move(why));
  });
}

void MeshDoor::lose(WorkerId id, Status why) {
  auto node = peers_.extract(id);
  if (node && node.mapped().registered) events_.tell(WorkerLost{id, std::move(why)});
}

void MeshDoor::on(SendToWorker message) {
  auto it = peers_.find(message.worker);
  if (it != peers_.end()) it->second.link->send(encode(message.message));
}

void MeshDoor::on(DropWorker message) {
  auto node = peers_.extract(message.worker);
  if (node) node.mapped().link->close();
}

}  // namespace headrace::coordinator
