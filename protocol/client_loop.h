#pragma once

#include <capnp/rpc-twoparty.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "protocol/api_words.h"
#include "protocol/client.h"
#include "protocol/guarded_stream.h"
#include "protocol/kj_strand.h"

// The inside of the client library: KJ's thread, the connection, and what runs over it.
namespace headrace::client {

inline kj::Duration kj_time(Duration d) { return d.count() * kj::NANOSECONDS; }

// Carries one outcome from the loop's thread to whoever waits.
template <class T>
class Slot {
 public:
  void set(Result<T> value) {
    std::lock_guard lock(mutex_);
    if (value_ || taken_) return;
    value_.emplace(std::move(value));
    there_.notify_all();
  }
  Result<T> take() {
    std::unique_lock lock(mutex_);
    there_.wait(lock, [&] { return value_.has_value(); });
    taken_ = true;
    Result<T> out = std::move(*value_);
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::optional<Result<T>> value_;
  bool taken_ = false;
};

struct Generation::State {
  std::function<void(const Chunk&)> on_chunk;
  RequestId request_id;
  Answer answer;      // grows on the loop's thread
  uint32_t next = 0;  // the position that must come now; of the loop's thread
  Slot<Answer> end;
  std::function<void()> cancel;
};

// What an answer is asked for with.
struct Question {
  std::optional<GenerateRequest> request;  // none: resume only
  bool resumable = true;
  Duration limit{};  // for all of it
};

class Stream;

// Everything but what posts lives on the thread of the loop.
class Loop final : public kj::TaskSet::ErrorHandler {
 public:
  explicit Loop(Endpoint to);
  ~Loop() noexcept;

  Status connect(Duration deadline);

  // Runs `body` on the loop and waits for what it promises, at most for `deadline`.
  template <class T, class Body>
  Result<T> call(Duration deadline, Body body) {
    auto slot = std::make_shared<Slot<T>>();
    strand().post([this, slot, deadline, body = std::move(body)]() mutable {
      auto promise = kj::evalNow([&]() -> kj::Promise<Result<T>> { return body(); });
      auto late = timer().afterDelay(kj_time(deadline)).then([this]() -> Result<T> {
        return error(Errc::kDeadline, "no answer from " + name_ + " in time");
      });
      tasks().add(promise.exclusiveJoin(kj::mv(late))
                      .then([slot](Result<T> result) { slot->set(std::move(result)); },
                            [this, slot](kj::Exception&& e) { slot->set(status_of(e, name_)); }));
    });
    return slot->take();
  }

  // From any thread.
  std::shared_ptr<Generation::State> begin(Question question,
                                           std::shared_ptr<Generation::State> state);

  api::Headrace::Client& main();
  // Counts connections, so that of many who lost one the first makes the next.
  uint64_t epoch() const { return epoch_; }
  kj::Promise<void> renew(uint64_t lost);
  // The coordinator's sign of life on this connection: one question for all who wait for it, since
  // a question for each of many answers would pass the connection's limit.
  kj::Promise<void> sign_of_life();
  const std::string& name() const { return name_; }
  KjStrand& strand() { return *thread_.strand(); }
  kj::Timer& timer() { return thread_.io().provider->getTimer(); }

 private:
  struct Connection;
  struct Running {
    std::shared_ptr<Generation::State> state;
    std::unique_ptr<Stream> stream;
    kj::Promise<void> done;
  };

  kj::Promise<void> connect_now();
  void start(uint64_t id, Question question, const std::shared_ptr<Generation::State>& state);
  void finish(uint64_t id, Result<Answer> end);
  void abandon(uint64_t id);
  kj::TaskSet& tasks();
  void taskFailed(kj::Exception&&) override {}  // every task reports by itself

  std::string name_;
  Endpoint to_;
  std::mutex mutex_;
  uint64_t next_ = 1;  // guarded

  kj::Own<Connection> connection_;
  kj::Maybe<api::Headrace::Client> main_;
  uint64_t epoch_ = 0;
  bool renewing_now_ = false;
  kj::Maybe<kj::ForkedPromise<void>> renewing_;
  uint64_t asked_epoch_ = 0;  // of the connection that owes a sign of life; 0: none does
  kj::Maybe<kj::ForkedPromise<void>> asked_;
  std::map<uint64_t, Running> running_;
  kj::Own<kj::TaskSet> tasks_;
  KjThread thread_;
};

}  // namespace headrace::client
