#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "protocol/check.h"
#include "worker/nccl_library.h"
#include "worker/nccl_pairs.h"
#include "worker/nccl_thread.h"

namespace headrace::worker {

// NCCL between devices of one process, as strict as the real one: a device runs what it was given
// in that order, whatever the communicators; a send runs only beside its receive, so two that cross
// wait for ever; who is left alone by an abort of the other end is not told.
class InProcessNccl {
 public:
  class Library;
  std::unique_ptr<NcclLibrary> device();  // one more
  uint64_t bytes() {                      // moved
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Operation {
    uint64_t number = 0;
    NcclId comm{};
    const std::byte* from = nullptr;  // or
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  struct Queue {
    std::deque<Operation> operations;
    uint64_t given = 0;
  };

  // Runs what has come together.
  void advance() {
    for (bool moved = true; std::exchange(moved, false);) {
      for (Queue* a : queues_) {
        for (Queue* b : queues_) moved = moved || run(*a, *b);
      }
    }
  }
  bool run(Queue& a, Queue& b) {
    if (&a == &b || a.operations.empty() || b.operations.empty()) return false;
    const Operation& send = a.operations.front();
    const Operation& receive = b.operations.front();
    if (send.from == nullptr || receive.to == nullptr || send.comm != receive.comm) return false;
    CHECK(send.bytes == receive.bytes);
    std::copy_n(send.from, send.bytes, receive.to);
    bytes_ += send.bytes;
    a.operations.pop_front();
    b.operations.pop_front();
    return true;
  }

  std::mutex mutex_;
  std::vector<Queue*> queues_;
  std::map<NcclId, int> begun_;  // ranks
  uint64_t ids_ = 0;
  uint64_t bytes_ = 0;
};

class InProcessNccl::Library final : public NcclLibrary {
 public:
  explicit Library(InProcessNccl& all) : all_(all) {
    const std::lock_guard lock(all_.mutex_);
    all_.queues_.push_back(&queue_);
  }
  ~Library() override {
    const std::lock_guard lock(all_.mutex_);
    std::erase(all_.queues_, &queue_);
  }
  uint32_t version() const override { return 22809; }
  Result<NcclId> mint() override {
    const std::lock_guard lock(all_.mutex_);
    NcclId id{};
    id[0] = std::byte(++all_.ids_);
    id[1] = std::byte(all_.ids_ >> 8);
    return id;
  }
  Result<Comm> begin(const NcclId& id, int) override {
    const std::lock_guard lock(all_.mutex_);
    ++all_.begun_[id];
    return Comm(new NcclId(id));
  }
  Result<Step> poll(Comm comm) override {
    const std::lock_guard lock(all_.mutex_);
    return all_.begun_.at(name(comm)) == 2 ? Step::kDone : Step::kPending;
  }
  Status send(Comm comm, const std::byte* from, size_t bytes) override {
    return give({0, name(comm), from, nullptr, bytes});
  }
  Status receive(Comm comm, std::byte* to, size_t bytes) override {
    return give({0, name(comm), nullptr, to, bytes});
  }
  Result<Mark> mark() override {
    const std::lock_guard lock(all_.mutex_);
    return Mark(new uint64_t(queue_.given));
  }
  Result<Step> reached(Mark mark) override {
    const std::lock_guard lock(all_.mutex_);
    const auto& waiting = queue_.operations;
    if (!waiting.empty() && waiting.front().number <= *static_cast<uint64_t*>(mark))
      return Step::kPending;
    delete static_cast<uint64_t*>(mark);
    return Step::kDone;
  }
  void drop(Mark mark) override { delete static_cast<uint64_t*>(mark); }
  Status abort(Comm comm) override {
    const std::unique_ptr<NcclId> owned(static_cast<NcclId*>(comm));
    const std::lock_guard lock(all_.mutex_);
    std::erase_if(queue_.operations, [&](const Operation& o) { return o.comm == *owned; });
    all_.advance();
    return {};
  }

 private:
  static const NcclId& name(Comm comm) { return *static_cast<NcclId*>(comm); }
  Status give(Operation o) {
    const std::lock_guard lock(all_.mutex_);
    o.number = ++queue_.given;
    queue_.operations.push_back(o);
    all_.advance();
    return {};
  }
  InProcessNccl& all_;
  Queue queue_;
};

inline std::unique_ptr<NcclLibrary> InProcessNccl::device() {
  return std::make_unique<Library>(*this);
}

// All of worker/nccl_* on such a device.
struct InProcessThread {
  NcclThread thread;
};
class InProcessLanes final : InProcessThread, public NcclPairs {
 public:
  InProcessLanes(const std::shared_ptr<Strand>& strand, InProcessNccl& nccl,
                 const NcclOptions& options)
      : InProcessThread{NcclThread(strand, nccl.device())}, NcclPairs(strand, thread, options) {}
};

}  // namespace headrace::worker
