#include "protocol/client_stream.h"

#include <algorithm>
#include <utility>

#include "protocol/client_words.h"
#include "protocol/slowdown.h"

namespace headrace::client {
namespace {

// While an answer is awaited the coordinator is asked for a sign of life.
constexpr Duration kPingEvery = 500ms;
constexpr Duration kSilence = 1500ms * kSlowdown;
constexpr Duration kPauseMin = 50ms;
constexpr Duration kPauseMax = 1s;

}  // namespace

// Takes what comes and delivers each position once, in order.
class Stream::Sink final : public api::TokenSink::Server {
 public:
  explicit Sink(std::shared_ptr<Generation::State> state) : state_(std::move(state)) {}

 private:
  kj::Promise<void> write(WriteContext context) override {
    const Chunk chunk = read_chunk(context.getParams().getChunk());
    const uint64_t end = uint64_t{chunk.position} + chunk.ids.size();
    if (end <= state_->next && !chunk.ids.empty()) return kj::READY_NOW;  // a repeat
    KJ_REQUIRE(chunk.position == state_->next, "a chunk came out of order");
    state_->next = static_cast<uint32_t>(end);
    Answer& answer = state_->answer;
    answer.ids.insert(answer.ids.end(), chunk.ids.begin(), chunk.ids.end());
    answer.logprobs.insert(answer.logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    answer.text += chunk.text;
    if (state_->on_chunk) state_->on_chunk(chunk);
    return kj::READY_NOW;
  }
  std::shared_ptr<Generation::State> state_;
};

Stream::Stream(Loop& loop, Question question, std::shared_ptr<Generation::State> state)
    : loop_(loop), question_(std::move(question)), state_(std::move(state)) {}

kj::Promise<Result<Answer>> Stream::run() {
  return attempt().then([this](End end) -> kj::Promise<Result<Answer>> {
    if (end.lost && question_.resumable) return again(end.answer.error());
    // Never admitted, since it was lost on its way: asked anew.
    const bool unknown = !end.answer && end.answer.error().code == Errc::kNotFound;
    if (unknown && asked_ && question_.request && state_->next == 0) {
      asked_ = false;
      return run();
    }
    return kj::mv(end.answer);
  });
}

kj::Promise<Stream::End> Stream::attempt() {
  epoch_ = loop_.epoch();
  auto state = state_;
  const auto read = [this, state](auto&& response) -> End {
    heard();
    return {read_end(response.getResult(), state->answer)};
  };
  kj::Promise<End> answer = nullptr;
  if (question_.request && !asked_) {
    auto call = loop_.main().generateRequest();
    write(call.initRequest(), *question_.request);
    if (Status status = check_size(call); !status.ok()) return End{std::move(status)};
    call.setSink(kj::heap<Sink>(state_));
    answer = call.send().then([read](auto&& r) { return read(r); });
  } else {
    auto call = loop_.main().resumeRequest();
    write(call.initRequest(), state_->request_id);
    call.setNext(state_->next);
    call.setSink(kj::heap<Sink>(state_));
    answer = call.send().then([read](auto&& r) { return read(r); });
  }
  return answer.exclusiveJoin(silence()).then(
      [](End end) { return end; },
      [this](kj::Exception&& e) -> End {
        return {status_of(e, loop_.name()), e.getType() == kj::Exception::Type::DISCONNECTED};
      });
}

// Ends once the coordinator owes a sign of life for kSilence. Waited for in two halves: the second
// begins only when this loop runs, so that its own lateness is not taken for the peer's silence.
kj::Promise<Stream::End> Stream::silence() {
  return loop_.timer()
      .afterDelay(kj_time(kPingEvery))
      .then([this]() {
        auto& timer = loop_.timer();
        auto late = timer.afterDelay(kj_time(kSilence / 2))
                        .then([&timer]() { return timer.afterDelay(kj_time(kSilence / 2)); })
                        .then([]() { return false; });
        return loop_.sign_of_life().then([]() { return true; }).exclusiveJoin(kj::mv(late));
      })
      .then([this](bool alive) -> kj::Promise<End> {
        if (alive) {
          heard();
          return silence();
        }
        return End{error(Errc::kDisconnected, loop_.name() + " has given no sign of life for " +
                                                  std::to_string(kSilence / 1ms) +
                                                  " ms; its answer is lost"),
                   true};
      });
}

void Stream::heard() {
  apart_ = false;
  pause_ = {};
}

kj::Promise<Result<Answer>> Stream::again(Status why) {
  const Instant now = loop_.strand().now();
  if (!std::exchange(apart_, true)) lost_ = now;
  if (now - lost_ >= Client::kResumeWithin)
    return Result<Answer>(
        error(Errc::kDisconnected, why.message + "; could not go on within " +
                                       std::to_string(Client::kResumeWithin / 1s) + " s"));
  asked_ = true;
  pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
  return loop_.timer()
      .afterDelay(kj_time(pause_))
      .then([this]() { return loop_.renew(epoch_); })
      .then([this]() { return run(); },
            [this](kj::Exception&& e) { return again(status_of(e, loop_.name())); });
}

}  // namespace headrace::client
