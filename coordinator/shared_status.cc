#include "coordinator/shared_status.h"

#include <kj/debug.h>

#include <utility>

namespace headrace::coordinator {

struct SharedStatus::Port final : ReplyPort<ClusterStatus> {
  explicit Port(SharedStatus& o) : owner(o) {}
  ~Port() noexcept override {}
  void on(ClusterStatus status) override {
    owner.answered(std::make_shared<const ClusterStatus>(std::move(status)));
  }
  SharedStatus& owner;
};

SharedStatus::SharedStatus(std::shared_ptr<KjStrand> strand, kj::Timer& timer,
                           Ref<Dispatcher> dispatcher)
    : strand_(std::move(strand)), timer_(timer), dispatcher_(std::move(dispatcher)) {}

SharedStatus::~SharedStatus() noexcept = default;

kj::Promise<SharedStatus::Shared> SharedStatus::get() {
  if (stopped_) return KJ_EXCEPTION(DISCONNECTED, "the coordinator is stopping");
  auto paf = kj::newPromiseAndFulfiller<Shared>();
  next_.push_back(kj::mv(paf.fulfiller));
  // What is asked already may be older than this question.
  if (!port_ && next_.size() == 1) ask();
  return kj::mv(paf.promise);
}

void SharedStatus::stop() {
  stopped_ = true;  // an end makes room for the next question
  later_ = {};
  port_ = nullptr;
  asked_.clear();
  next_.clear();
}

void SharedStatus::ask() {
  if (const auto now = timer_.now(); now < earliest_) {
    const auto wait = std::chrono::nanoseconds((earliest_ - now) / kj::NANOSECONDS);
    later_ = strand_->after(wait, [this] { ask(); });
    return;
  }
  earliest_ = timer_.now() + kStatusEvery.count() * kj::NANOSECONDS;
  asked_ = std::exchange(next_, {});
  port_ = std::make_shared<Port>(*this);
  dispatcher_.tell(AskStatus{Ref<ReplyPort<ClusterStatus>>(strand_, port_)});
}

void SharedStatus::answered(Shared status) {
  const auto keep = std::exchange(port_, nullptr);  // it is what called us
  for (auto& one : std::exchange(asked_, {})) one->fulfill(Shared(status));
  if (!next_.empty()) ask();
}

}  // namespace headrace::coordinator
