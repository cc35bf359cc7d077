#pragma once

#include <arpa/inet.h>
#include <capnp/capability.h>
#include <capnp/message.h>
#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string>

#include "protocol/api.capnp.h"

namespace headrace::coordinator::fakes {

// A plain socket to the gateway, for what no client library would say.
struct RawSocket {
  explicit RawSocket(uint16_t port) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const timeval patience{20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawSocket() { close(fd); }
  RawSocket(const RawSocket&) = delete;
  // False once the other side has closed.
  bool say(const std::string& bytes) const {
    return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // How much of it goes without waiting.
  size_t try_say(const std::string& bytes) const {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? static_cast<size_t>(n) : 0;
  }
  // Reads until the other side closes; false if it does not.
  bool closed() const {
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }
  int fd;
  bool connected = false;
};

inline std::string flat(capnp::MessageBuilder& message) {
  const auto words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  return {bytes.asChars().begin(), bytes.size()};
}

// Cap'n Proto RPC spoken by hand, one message at a time.
struct RawRpc : RawSocket {
  static constexpr uint64_t kHeadrace = 0xb7af8b937261e817;  // interface id, api.capnp
  enum Method : uint16_t { kHello = 0, kModels = 1, kGenerate = 2, kStatus = 5 };
  using RawSocket::RawSocket;

  static std::string bootstrap(uint32_t question) {
    capnp::MallocMessageBuilder m;
    m.initRoot<capnp::rpc::Message>().initBootstrap().setQuestionId(question);
    return flat(m);
  }
  static std::string finish(uint32_t question) {
    capnp::MallocMessageBuilder m;
    auto f = m.initRoot<capnp::rpc::Message>().initFinish();
    f.setQuestionId(question);
    f.setReleaseResultCaps(true);
    return flat(m);
  }
  // To what question `target` will answer; field: of its result, else the result itself.
  static capnp::rpc::Call::Builder call(capnp::MessageBuilder& m, uint32_t question,
                                        uint32_t target, uint64_t interface, uint16_t method,
                                        bool field = false) {
    auto c = m.initRoot<capnp::rpc::Message>().initCall();
    c.setQuestionId(question);
    auto promised = c.initTarget().initPromisedAnswer();
    promised.setQuestionId(target);
    if (field) promised.initTransform(1)[0].setGetPointerField(0);
    c.setInterfaceId(interface);
    c.setMethodId(method);
    c.initSendResultsTo().setCaller();
    return c;
  }
  static std::string hello(uint32_t question, uint32_t target = 0) {
    capnp::MallocMessageBuilder m;
    call(m, question, target, kHeadrace, kHello)
        .initParams()
        .getContent()
        .initAs<api::Headrace::HelloParams>();
    return flat(m);
  }
  static std::string status(uint32_t question) {
    capnp::MallocMessageBuilder m;
    call(m, question, 0, kHeadrace, kStatus)
        .initParams()
        .getContent()
        .initAs<api::Headrace::StatusParams>();
    return flat(m);
  }
  // A request with a sink of ours that never takes anything.
  static std::string generate(uint32_t question, const std::string& prompt) {
    capnp::MallocMessageBuilder m;
    auto params = call(m, question, 0, kHeadrace, kGenerate).initParams();
    params.initCapTable(1)[0].setSenderHosted(question);
    capnp::BuilderCapabilityTable table;
    auto content = table.imbue(params.getContent()).initAs<api::Headrace::GenerateParams>();
    content.initRequest().initPrompt().setText(prompt);
    content.setSink(api::TokenSink::Client(capnp::newBrokenCap("by hand")));
    return flat(m);
  }

  // How many answers come before the one to this question.
  uint32_t answers_before(uint32_t question) const {
    for (uint32_t count = 0;; ++count) {
      capnp::StreamFdMessageReader reader(fd);
      const auto m = reader.getRoot<capnp::rpc::Message>();
      REQUIRE(m.isReturn());
      if (m.getReturn().getAnswerId() == question) return count;
    }
  }
  // The answer to this question: "ok", the text of its exception, or "closed". Answers come in any
  // order: those of other questions are kept.
  std::string answer(uint32_t question) {
    for (;;) {
      if (const auto kept = answers_.extract(question)) return kept.mapped();
      try {
        capnp::StreamFdMessageReader reader(fd);
        const auto m = reader.getRoot<capnp::rpc::Message>();
        if (m.isAbort()) return "closed";
        if (m.isReturn()) answers_[m.getReturn().getAnswerId()] = text_of(m.getReturn());
      } catch (const kj::Exception&) {
        return "closed";
      }
    }
  }

 private:
  static std::string text_of(capnp::rpc::Return::Reader answer) {
    if (!answer.isException()) return "ok";
    const auto why = answer.getException();
    const auto text = why.getReason();
    return (why.getType() == capnp::rpc::Exception::Type::UNIMPLEMENTED ? "unimplemented: " : "") +
           std::string(text.begin(), text.size());
  }
  std::map<uint32_t, std::string> answers_;  // to questions not yet looked at
};

}  // namespace headrace::coordinator::fakes
