#include "tests/sim/sim_client.h"

#include <utility>

namespace headrace::sim {

using coordinator::Chunk;
using coordinator::Ended;

namespace {

// The words of resuming, for a Dispatcher that knows them.
template <class D, class M>
constexpr bool knows = requires(D& d, M m) {
  d.on(std::move(m));
};
template <class D, class M>
void tell(const Ref<D>& to, M message) {
  if constexpr (knows<D, M>) to.tell(std::move(message));
}

}  // namespace

SimClient::SimClient(std::shared_ptr<Strand> strand, Ref<coordinator::Dispatcher> dispatcher,
                     ClientManners manners, coordinator::Submit submit)
    : strand_(std::move(strand)),
      dispatcher_(std::move(dispatcher)),
      manners_(manners),
      submit_(std::move(submit)),
      prompt_(std::get<std::vector<Token>>(submit_.prompt)) {
  if (!knows<coordinator::Dispatcher, coordinator::Resume>) manners_.leaves_after = {};
}

void SimClient::begin() {
  begun_ = strand_->now();
  submit_.resumable = manners_.leaves_after > Duration{0};
  submit_.client = Ref<coordinator::ClientPort>(strand_, open());
  submit_.owner = sessions_.size();
  dispatcher_.tell(submit_);
  if (manners_.abandons_after > Duration{0})
    abandon_timer_ = strand_->after(manners_.abandons_after, [this] {
      if (over()) return;
      abandoned_ = true;
      dispatcher_.tell(coordinator::Abandon{submit_.request});
    });
  if (manners_.leaves_after > Duration{0})
    leave_timer_ = strand_->after(manners_.leaves_after, [this] { leave(); });
}

std::shared_ptr<SimClient::Session> SimClient::open() {
  auto session = std::make_shared<Session>();
  session->client = weak_from_this();
  sessions_.push_back(session);
  session->owner = sessions_.size();
  return session;
}

void SimClient::Session::on(Chunk chunk) {
  if (const auto c = client.lock()) c->take(*this, std::move(chunk));
}

void SimClient::Session::on(Ended e) {
  if (const auto c = client.lock()) c->end(*this, std::move(e));
}

void SimClient::take(Session& session, Chunk chunk) {
  if (session.ended) trouble_ = "a chunk after the end";
  if (away_ || session.owner != sessions_.size()) return;
  if (chunk.position != ids_.size()) trouble_ = "a chunk out of order";
  if (chunk.ids.empty()) trouble_ = "a chunk without tokens";
  ids_.insert(ids_.end(), chunk.ids.begin(), chunk.ids.end());
  if (manners_.takes_after == Duration{0}) return acknowledge();
  take_timer_ = strand_->after(manners_.takes_after, [this] { acknowledge(); });
}

void SimClient::acknowledge() {
  dispatcher_.tell(coordinator::Acknowledge{submit_.request, static_cast<uint32_t>(ids_.size()),
                                            sessions_.size()});
}

void SimClient::end(Session& session, Ended e) {
  if (std::exchange(session.ended, true)) trouble_ = "two terminal records on one connection";
  if (away_ || session.owner != sessions_.size()) return;
  ended_.push_back(std::move(e));
  ended_at_ = strand_->now();
}

void SimClient::leave() {
  if (over()) return;
  away_ = true;
  tell(dispatcher_, coordinator::Detach{submit_.request, sessions_.size()});
  leave_timer_ = strand_->after(manners_.away, [this] { come_back(); });
}

void SimClient::come_back() {
  away_ = false;
  ++resumed_;
  const auto session = open();
  tell(dispatcher_,
       coordinator::Resume{submit_.request, static_cast<uint32_t>(ids_.size()), sessions_.size(),
                           Ref<coordinator::ClientPort>(strand_, session)});
}

}  // namespace headrace::sim
