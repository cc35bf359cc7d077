#include "coordinator/gateway_session.h"

#include <kj/debug.h>

#include <deque>
#include <utility>

#include "coordinator/gateway.h"
#include "coordinator/gateway_stream.h"
#include "coordinator/gateway_words.h"

namespace headrace::coordinator {
namespace {

constexpr Duration kAnswerWithin = 30s;  // the Dispatcher, to a question
constexpr uint32_t kProtocol = 1;        // minor version of api.capnp
constexpr uint32_t kStatusAtOnce = 4;    // of a connection; others wait

// Room for an answer: without a size each takes 8 KiB until the client has finished its question.
constexpr capnp::MessageSize kSmall{24, 0};

uint64_t words_of(const ClusterStatus& status) { return 256 + status.workers.size() * 96; }
uint64_t text_words(const std::string& text) { return text.size() / sizeof(capnp::word) + 2; }

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
  Session(GatewayCore& core, std::shared_ptr<Presence> presence, std::shared_ptr<PeerTab> tab)
      : core_(core), presence_(std::move(presence)), tab_(std::move(tab)) {
    tab_->eased = [this] { admit(); };
  }
  ~Session() noexcept { tab_->eased = nullptr; }

 private:
  // Counts a call as open while its promise lives. Short questions without a place for an error
  // (models, status) are not counted: the guard bounds them.
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

  // Lets those who ask for status go on: few at a time, and while the client takes what it was
  // told.
  void admit() {
    while (!waiting_.empty() && *asking_ < kStatusAtOnce &&
           tab_->answers() < Gateway::kAnswerBytesMax) {
      auto next = std::move(waiting_.front());
      waiting_.pop_front();
      if (!next->isWaiting()) continue;  // its call is over
      ++*asking_;
      next->fulfill(std::make_shared<Asking>(asking_, tab_));
    }
  }
  struct Asking {
    Asking(std::shared_ptr<uint32_t> n, std::shared_ptr<PeerTab> t)
        : count(std::move(n)), tab(std::move(t)) {}
    ~Asking() noexcept {
      --*count;
      if (tab->eased) tab->eased();
    }
    std::shared_ptr<uint32_t> count;
    std::shared_ptr<PeerTab> tab;
  };
  // The status, in this connection's turn; `use` writes it.
  template <class Use>
  kj::Promise<void> with_status(Use use) {
    auto paf = kj::newPromiseAndFulfiller<std::shared_ptr<Asking>>();
    waiting_.push_back(kj::mv(paf.fulfiller));
    admit();
    auto told = paf.promise.then([this, use](std::shared_ptr<Asking> turn) mutable {
      return core_.status.get().then([this, use, turn](SharedStatus::Shared status) mutable {
        KJ_REQUIRE(core_.turnstile != nullptr, "the coordinator is stopping");
        return core_.turnstile->pass().then([use, turn, status]() mutable {
          use(*status);
          turn = nullptr;
        });
      });
    });
    return in_time(kj::mv(told));
  }

  template <class T>
  kj::Promise<T> in_time(kj::Promise<T> answer) {
    return core_.timer.timeoutAfter(kAnswerWithin.count() * kj::NANOSECONDS,
                                    presence_->until_lost(kj::mv(answer)));
  }

  template <class Results>
  void made(Results results) {
    tab_->made(results.asReader().totalSize().wordCount * sizeof(capnp::word));
  }

  // Asks the Dispatcher; `make` builds the question around the reply address.
  template <class T, class Make>
  kj::Promise<T> ask(Make make) {
    auto paf = kj::newPromiseAndFulfiller<T>();
    auto shot = std::make_shared<OneShot<T>>(kj::mv(paf.fulfiller));
    core_.dispatcher.tell(make(Ref<ReplyPort<T>>(core_.strand, shot)));
    return in_time(kj::mv(paf.promise)).attach(std::move(shot));
  }

  kj::Promise<void> hello(HelloContext context) override {
    context.releaseParams();
    auto server = context.getResults(kSmall).initServer();
    server.setVersion(HEADRACE_VERSION);
    server.setProtocol(kProtocol);
    return kj::READY_NOW;
  }

  kj::Promise<void> models(ModelsContext context) override {
    context.allowCancellation();
    context.releaseParams();
    return with_status([this, context](const ClusterStatus& status) mutable {
      auto results = context.getResults(capnp::MessageSize{64, 0});
      write_models(results.initModels(status.model ? 1 : 0), status);
      made(results);
    });
  }

  kj::Promise<void> status(StatusContext context) override {
    context.allowCancellation();
    context.releaseParams();
    return with_status([this, context](const ClusterStatus& status) mutable {
      auto results = context.getResults(capnp::MessageSize{words_of(status), 0});
      write(results.initStatus(), status);
      made(results);
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
    return ask<T>([&](auto reply) {
             return AskTokenize{std::move(*prompt), special, reply};
           })
        .then([this, context](T ids) mutable {
          const uint64_t words = ids ? ids->size() / 2 : text_words(ids.error().message);
          auto result = context.getResults(capnp::MessageSize{24 + words, 0}).initResult();
          tab_->made(words * sizeof(capnp::word));
          if (!ids) return write(result.initError(), ids.error());
          auto list = result.initOk().initIds(static_cast<uint32_t>(ids->size()));
          for (uint32_t i = 0; i < list.size(); ++i) list.set(i, (*ids)[i]);
        })
        .attach(Open(open_calls_));
  }

  kj::Promise<void> detokenize(DetokenizeContext context) override {
    context.allowCancellation();
    if (full()) {
      write(context.getResults().initResult().initError(), too_many());
      return kj::READY_NOW;
    }
    std::vector<Token> ids;
    for (const Token id : context.getParams().getIds()) ids.push_back(id);
    using T = Result<std::string>;
    return ask<T>([&](auto reply) {
             return AskDetokenize{std::move(ids), reply};
           })
        .then([this, context](T text) mutable {
          const uint64_t words = text_words(text ? *text : text.error().message);
          auto result = context.getResults(capnp::MessageSize{24 + words, 0}).initResult();
          tab_->made(words * sizeof(capnp::word));
          if (!text) return write(result.initError(), text.error());
          result.setOk(capnp::Text::Reader(text->c_str(), text->size()));
        })
        .attach(Open(open_calls_));
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
    if (submit->request == RequestId{}) submit->request = core_.random.mint<RequestId>();
    auto sink = params.getSink();
    context.releaseParams();
    return follow(context, submit->request, kj::mv(sink), [this, &submit](Follower follower) {
      submit->known = follower.known;
      submit->owner = follower.owner;
      submit->client = std::move(follower.client);
      core_.dispatcher.tell(std::move(*submit));
    });
  }

  kj::Promise<void> resume(ResumeContext context) override {
    context.allowCancellation();
    auto params = context.getParams();
    const RequestId request = read_request_id(params.getRequest());
    Status wrong;
    if (!params.hasSink()) wrong = error(Errc::kInvalid, "request: there is no sink");
    if (full()) wrong = too_many();
    if (!wrong.ok()) {
      write(context.getResults().initResult().initError(), wrong);
      return kj::READY_NOW;
    }
    const uint32_t next = params.getNext();
    auto sink = params.getSink();
    context.releaseParams();
    return follow(context, request, kj::mv(sink), [&](Follower follower) {
      core_.dispatcher.tell(Resume{request, next, follower.owner, std::move(follower.client)});
    });
  }

  kj::Promise<void> cancel(CancelContext context) override {
    context.allowCancellation();
    const RequestId request = read_request_id(context.getParams().getRequest());
    return ask<bool>([&](auto reply) {
             return AskCancel{request, reply};
           })
        .then([context](bool found) mutable { context.getResults(kSmall).setFound(found); });
  }

  // Who takes an answer, as the Dispatcher knows it.
  struct Follower {
    uint64_t owner;
    Ref<ClientPort> client;
    bool known;
  };
  // Streams an answer into `sink` and ends the call with its end; `begin` tells the Dispatcher.
  template <class Context, class Begin>
  kj::Promise<void> follow(Context context, RequestId request, api::TokenSink::Client sink,
                           Begin begin) {
    auto paf = kj::newPromiseAndFulfiller<Ended>();
    const uint64_t owner = ++core_.owners;
    const bool known = standing_->ask();
    auto stream = std::make_shared<GatewayStream>(core_, presence_->gone, standing_, tab_, request,
                                                  owner, kj::mv(sink), kj::mv(paf.fulfiller));
    begin(Follower{owner, Ref<ClientPort>(core_.strand, stream), known});
    return presence_->until_lost(kj::mv(paf.promise))
        .then([context](Ended ended) mutable {
          const uint64_t words = text_words(ended.text) + text_words(ended.status.message);
          auto result = context.getResults(capnp::MessageSize{48 + words, 0}).initResult();
          if (ended.status.ok())
            write(result.initOk(), ended);
          else
            write(result.initError(), ended.status);
        })
        .attach(std::move(stream), Open(open_calls_));
  }

  GatewayCore& core_;
  std::shared_ptr<Presence> presence_;
  std::shared_ptr<PeerTab> tab_;
  std::shared_ptr<Standing> standing_ = std::make_shared<Standing>();
  std::shared_ptr<uint32_t> open_calls_ = std::make_shared<uint32_t>(0);
  std::shared_ptr<uint32_t> asking_ = std::make_shared<uint32_t>(0);  // at most kStatusAtOnce
  std::deque<kj::Own<kj::PromiseFulfiller<std::shared_ptr<Asking>>>> waiting_;
};

}  // namespace

void Presence::end() {
  *gone = true;
  end_->reject(KJ_EXCEPTION(DISCONNECTED, "the connection is over"));
}

kj::Own<api::Headrace::Server> make_session(GatewayCore& core, std::shared_ptr<Presence> presence,
                                            std::shared_ptr<PeerTab> tab) {
  return kj::heap<Session>(core, std::move(presence), std::move(tab));
}

}  // namespace headrace::coordinator
