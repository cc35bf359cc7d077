#include "worker/mesh_client.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "protocol/check.h"
#include "protocol/codec.h"

namespace headrace::worker {

MeshClient::MeshClient(std::shared_ptr<Strand> strand, Network& network, Random& random,
                       Endpoint coordinator, Duration silence, Ref<Worker> worker,
                       MeshEvents events)
    : strand_(std::move(strand)),
      network_(network),
      random_(random),
      coordinator_(std::move(coordinator)),
      silence_(silence),
      worker_(std::move(worker)),
      events_(std::move(events)) {}

MeshClient::~MeshClient() { drop_link(); }

void MeshClient::start() { dial(); }

void MeshClient::on(FromWorker m) {
  if (link_ && m.incarnation == incarnation_) link_->send(encode(m.message));
}

void MeshClient::dial() {
  network_.dial(coordinator_, kDialDeadline, {}, strand_,
                [weak = weak_from_this()](Result<std::unique_ptr<Link>> link) {
                  if (auto self = weak.lock()) self->on_dialled(std::move(link));
                });
}

void MeshClient::on_dialled(Result<std::unique_ptr<Link>> link) {
  if (!link) {
    if (events_.lost) events_.lost(link.error());
    return dial_later();
  }
  link_ = std::move(*link);
  ++connection_;
  link_->start(
      [weak = weak_from_this(), n = connection_](const Bytes& frame) {
        if (auto self = weak.lock(); self && self->connection_ == n) self->on_frame(frame);
      },
      [weak = weak_from_this(), n = connection_](Status why) {
        if (auto self = weak.lock(); self && self->connection_ == n) {
          self->lose(error(Errc::kDisconnected, "the link to the coordinator at " +
                                                    to_string(self->coordinator_) +
                                                    " closed: " + why.message));
        }
      });
  incarnation_ = random_.mint<Incarnation>();
  welcomed_ = false;
  heard_ = strand_->now();
  put_off_ = false;
  worker_.tell(LinkUp{incarnation_});
  sweep_later();
}

void MeshClient::on_frame(const Bytes& frame) {
  if (!link_) return;
  auto message = decode_to_worker(frame);
  if (!message) {
    return lose(error(Errc::kInvalid, "a frame of the coordinator at " + to_string(coordinator_) +
                                          " cannot be read: " + message.error().message));
  }
  heard_ = strand_->now();
  if (auto* rejected = std::get_if<to_worker::Rejected>(&*message)) {
    drop_link();
    timer_.cancel();
    worker_.tell(LinkDown{});
    if (events_.rejected) events_.rejected(std::move(rejected->why));
    return;
  }
  if (const auto* welcome = std::get_if<to_worker::Welcome>(&*message)) {
    welcomed_ = true;
    backoff_ = kBackoffMin;
    if (events_.joined) events_.joined(welcome->worker);
  }
  std::visit(
      [this](auto& m) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(m)>, to_worker::Rejected>) {
          worker_.tell(std::move(m));
        }
      },
      *message);
}

void MeshClient::sweep_later() {
  sweep_due_ = strand_->now() + kSweepEvery;
  timer_ = strand_->after(kSweepEvery, [this] { sweep(); });
}

void MeshClient::sweep() {
  const bool late = strand_->now() - sweep_due_ >= kSweepEvery;
  if (late && !std::exchange(put_off_, true)) {
    timer_ = strand_->after(kSweepPause, [this] { sweep(); });
    return;
  }
  put_off_ = false;
  sweep_later();
  const Duration silent = strand_->now() - heard_;
  if (silent >= (welcomed_ ? silence_ : std::min(silence_, kWelcomeDeadline))) {
    lose(error(Errc::kDisconnected,
               "the coordinator at " + to_string(coordinator_) + " has gone silent"));
  }
}

void MeshClient::lose(Status why) {
  drop_link();
  worker_.tell(LinkDown{});
  if (events_.lost) events_.lost(std::move(why));
  dial_later();
}

void MeshClient::drop_link() {
  ++connection_;
  incarnation_ = {};
  // We may be inside one of the link's callbacks: let it go afterwards.
  if (link_) strand_->post([link = std::move(link_)] {});
}

void MeshClient::dial_later() {
  const auto half = static_cast<uint64_t>((backoff_ / 2).count());
  const Duration jitter(static_cast<int64_t>(random_.next() % (half + 1)));
  timer_ = strand_->after(backoff_ + jitter, [this] { dial(); });
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
}

}  // namespace headrace::worker
