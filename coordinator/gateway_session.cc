#include "coordinator/gateway_session.h"

#include <kj/debug.h>

#include <deque>
#include <utility>

#include "coordinator/gateway.h"
#include "coordinator/gateway_words.h"

namespace headrace::coordinator {
namespace {

constexpr Duration kAnswerWithin = 30s;  // the Dispatcher, to a question
constexpr uint32_t kProtocol = 1;        // minor version of api.capnp

// One generate call: an actor on KJ's loop that writes chunks into the client's sink and gives
// credit as the writes return. Its end before the answer's end abandons the request.
class Stream final : public ClientPort, private kj::TaskSet::ErrorHandler {
 public:
  Stream(GatewayCore& core, RequestId id, api::TokenSink::Client sink,
         kj::Own<kj::PromiseFulfiller<Ended>> done)
      : core_(core), id_(id), sink_(kj::mv(sink)), done_(kj::mv(done)), writes_(*this) {
    ++core_.open_streams;
  }
  ~Stream() noexcept override {
    --core_.open_streams;
    if (!ended_) core_.dispatcher.tell(Abandon{id_});
  }

  void on(Chunk chunk) override {
    if (broken_) return;
    auto call = sink_.writeRequest();
    write(call.initChunk(), chunk);
    const uint64_t number = first_ + pending_.size();
    pending_.push_back({chunk.position + static_cast<uint32_t>(chunk.ids.size()), false});
    writes_.add(call.send().then([this, number](auto&&) { returned(number); }));
  }

  void on(Ended ended) override {
    if (ended_) return;
    ended_ = std::move(ended);
    // A client that does not return its last writes waits in vain.
    late_ = core_.strand->after(kClientStall, [this] { complete(); });
    // What was cut off is not waited for.
    if (ended_->finish == Finish::kCancelled || broken_) return complete();
    complete_if_written();
  }

 private:
  struct Write {
    uint32_t end;  // position behind its last token
    bool returned;
  };

  // A client may return its writes in any order; credit counts the unbroken front.
  void returned(uint64_t number) {
    pending_.at(number - first_).returned = true;
    const uint64_t before = first_;
    uint32_t end = 0;
    while (!pending_.empty() && pending_.front().returned) {
      end = pending_.front().end;
      pending_.pop_front();
      ++first_;
    }
    if (first_ != before && !ended_) core_.dispatcher.tell(Acknowledge{id_, end});
    complete_if_written();
  }

  // The client's sink threw or is gone.
  void taskFailed(kj::Exception&&) override {
    broken_ = true;
    if (ended_) return complete();
    core_.dispatcher.tell(Abandon{id_});  // answered by Ended
  }

  void complete_if_written() {
    if (ended_ && pending_.empty()) complete();
  }
  void complete() {
    if (std::exchange(completed_, true)) return;
    if (broken_) {
      ended_->finish = Finish::kCancelled;
      ended_->status = error(Errc::kCancelled, "the client's sink failed");
    }
    done_->fulfill(std::move(*ended_));
  }

  GatewayCore& core_;
  RequestId id_;
  api::TokenSink::Client sink_;
  kj::Own<kj::PromiseFulfiller<Ended>> done_;
  std::deque<Write> pending_;  // at most the credit of a stream
  uint64_t first_ = 0;         // number of pending_.front()
  std::optional<Ended> ended_;
  bool broken_ = false;
  bool completed_ = false;
  Timer late_;
  kj::TaskSet writes_;
};

// One question to the Dispatcher.
template <class T>
class OneShot final : public ReplyPort<T> {
 public:
  explicit OneShot(kj::Own<kj::PromiseFulfiller<T>> fulfiller) : fulfiller_(kj::mv(fulfiller)) {}
  ~OneShot() noexcept override {}
  void on(T answer) override { fulfiller_->fulfill(std::move(answer)); }

 private:
  kj::Own<kj::PromiseFulfiller<T>> fulfiller_;
};

class Session final : public api::Headrace::Server {
 public:
  explicit Session(GatewayCore& core) : core_(core) {}

 private:
  // Counts a call as open while its promise lives.
  class Open {
   public:
    explicit Open(std::shared_ptr<uint32_t> count) : count_(std::move(count)) { ++*count_; }
    Open(Open&&) = default;
    ~Open() noexcept {
      if (count_) --*count_;
    }

   private:
    std::shared_ptr<uint32_t> count_;
  };

  bool full() const { return *open_calls_ >= Gateway::kOpenCallsMax; }
  static Status too_many() {
    return error(
        Errc::kOverloaded,
        "this connection has " + std::to_string(Gateway::kOpenCallsMax) + " open calls, its limit");
  }

  // Asks the Dispatcher; `make` builds the question around the reply address.
  template <class T, class Make>
  kj::Promise<T> ask(Make make) {
    auto paf = kj::newPromiseAndFulfiller<T>();
    auto shot = std::make_shared<OneShot<T>>(kj::mv(paf.fulfiller));
    core_.dispatcher.tell(make(Ref<ReplyPort<T>>(core_.strand, shot)));
    return core_.timer.timeoutAfter(kAnswerWithin.count() * kj::NANOSECONDS, kj::mv(paf.promise))
        .attach(std::move(shot), Open(open_calls_));
  }

  kj::Promise<void> hello(HelloContext context) override {
    auto server = context.getResults().initServer();
    server.setVersion(HEADRACE_VERSION);
    server.setProtocol(kProtocol);
    return kj::READY_NOW;
  }

  kj::Promise<void> models(ModelsContext context) override {
    KJ_REQUIRE(!full(), "too many open calls");
    context.allowCancellation();
    return ask<ClusterStatus>([](auto reply) { return AskStatus{reply}; })
        .then([context](ClusterStatus status) mutable {
          write_models(context.getResults().initModels(status.model ? 1 : 0), status);
        });
  }

  kj::Promise<void> status(StatusContext context) override {
    KJ_REQUIRE(!full(), "too many open calls");
    context.allowCancellation();
    return ask<ClusterStatus>([](auto reply) { return AskStatus{reply}; })
        .then([context](ClusterStatus status) mutable {
          write(context.getResults().initStatus(), status);
        });
  }

  kj::Promise<void> tokenize(TokenizeContext context) override {
    context.allowCancellation();
    Result<Prompt> prompt = read_prompt(context.getParams().getPrompt());
    if (full()) prompt = too_many();
    if (!prompt) {
      write(context.getResults().initResult().initError(), prompt.error());
      return kj::READY_NOW;
    }
    using T = Result<std::vector<Token>>;
    const bool special = context.getParams().getPrompt().getSpecial();
    context.releaseParams();
    return ask<T>([&](auto reply) {
             return AskTokenize{std::move(*prompt), special, reply};
           })
        .then([context](T ids) mutable {
          auto result = context.getResults().initResult();
          if (!ids) return write(result.initError(), ids.error());
          auto list = result.initOk().initIds(static_cast<uint32_t>(ids->size()));
          for (uint32_t i = 0; i < list.size(); ++i) list.set(i, (*ids)[i]);
        });
  }

  kj::Promise<void> detokenize(DetokenizeContext context) override {
    context.allowCancellation();
    if (full()) {
      write(context.getResults().initResult().initError(), too_many());
      return kj::READY_NOW;
    }
    std::vector<Token> ids;
    for (const Token id : context.getParams().getIds()) ids.push_back(id);
    context.releaseParams();
    using T = Result<std::string>;
    return ask<T>([&](auto reply) {
             return AskDetokenize{std::move(ids), reply};
           })
        .then([context](T text) mutable {
          auto result = context.getResults().initResult();
          if (!text) return write(result.initError(), text.error());
          result.setOk(capnp::Text::Reader(text->c_str(), text->size()));
        });
  }

  kj::Promise<void> generate(GenerateContext context) override {
    context.allowCancellation();
    auto params = context.getParams();
    Result<Submit> submit = read_request(params.getRequest());
    if (submit && !params.hasSink()) submit = error(Errc::kInvalid, "request: there is no sink");
    if (full()) submit = too_many();
    if (!submit) {
      write(context.getResults().initResult().initError(), submit.error());
      return kj::READY_NOW;
    }
    auto paf = kj::newPromiseAndFulfiller<Ended>();
    submit->request = core_.random.mint<RequestId>();
    auto stream =
        std::make_shared<Stream>(core_, submit->request, params.getSink(), kj::mv(paf.fulfiller));
    submit->client = Ref<ClientPort>(core_.strand, stream);
    context.releaseParams();
    core_.dispatcher.tell(std::move(*submit));
    return paf.promise
        .then([context](Ended ended) mutable {
          auto result = context.getResults().initResult();
          if (ended.status.ok())
            write(result.initOk(), ended);
          else
            write(result.initError(), ended.status);
        })
        .attach(std::move(stream), Open(open_calls_));
  }

  GatewayCore& core_;
  std::shared_ptr<uint32_t> open_calls_ = std::make_shared<uint32_t>(0);
};

}  // namespace

kj::Own<api::Headrace::Server> make_session(GatewayCore& core) { return kj::heap<Session>(core); }

}  // namespace headrace::coordinator
