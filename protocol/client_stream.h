#pragma once

#include <memory>

#include "protocol/client_loop.h"

namespace headrace::client {

// One answer on its way, over as many connections as it takes. Lives on the loop's thread.
class Stream {
 public:
  Stream(Loop& loop, Question question, std::shared_ptr<Generation::State> state);

  // To the one end. Once; `this` must outlive what it promises.
  kj::Promise<Result<Answer>> run();
  bool resumable() const { return question_.resumable; }

 private:
  struct End {
    Result<Answer> answer;
    bool lost = false;  // the connection, not the answer, has ended
  };
  class Sink;

  kj::Promise<End> attempt();
  kj::Promise<End> silence();
  kj::Promise<Result<Answer>> again(Status why);
  void heard();

  Loop& loop_;
  Question question_;
  std::shared_ptr<Generation::State> state_;
  bool asked_ = false;  // the coordinator may know the request
  uint64_t epoch_ = 0;  // the connection that carries it
  bool apart_ = false;  // since lost_
  Instant lost_{};
  Duration pause_{};  // before the next try
};

}  // namespace headrace::client
