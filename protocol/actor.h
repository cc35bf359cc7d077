#pragma once

#include <memory>
#include <utility>

#include "protocol/strand.h"

namespace headrace {

// Address of an actor: whoever holds it may tell the actor any message for which it has an
// overload `on(Message)`; anything else does not compile. A message to the dead is dropped, so
// references make no cycles. A value; may be used from any thread.
//
// `A` may be an abstract base that declares the overloads (a port), e.g. Ref<ClientPort>.
template <class A>
class Ref {
 public:
  Ref() = default;
  Ref(std::shared_ptr<Strand> strand, std::weak_ptr<A> actor)
      : strand_(std::move(strand)), actor_(std::move(actor)) {}

  template <class Message>
  requires requires(A& a, Message m) { a.on(std::move(m)); }
  void tell(Message message) const {
    if (!strand_) return;
    strand_->post([actor = actor_, m = std::move(message)]() mutable {
      if (auto a = actor.lock()) a->on(std::move(m));
    });
  }

  explicit operator bool() const { return strand_ != nullptr; }

 private:
  std::shared_ptr<Strand> strand_;
  std::weak_ptr<A> actor_;
};

}  // namespace headrace
