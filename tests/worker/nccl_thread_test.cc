#include "worker/nccl_thread.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "tests/worker/queue_strand.h"

namespace headrace::worker {
namespace {

// A library whose calls wait where they are told to.
class SlowLibrary final : public NcclLibrary {
 public:
  enum Call { kMint, kBegin, kPoll, kSend, kReached, kAbort, kCalls };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool hangs[kCalls] = {};
    bool pending = false;  // polls
    Status wrong;          // of sends
    Status broken;         // of the communicators, as polls see them
    std::vector<size_t> sent;
    int aborted = 0, inside = 0, most_inside = 0, marks = 0;
    bool first_seems_late =
        false;        // the device comes to the first mark just after it was looked at
    size_t made = 0;  // marks, ever
    void set(bool& what, bool to) {
      const std::lock_guard lock(mutex);
      what = to;
      changed.notify_all();
    }
  };
  explicit SlowLibrary(std::shared_ptr<State> state) : s_(std::move(state)) {}
  uint32_t version() const override { return 22809; }
  Result<NcclId> mint() override {
    pass(kMint);
    return NcclId{};
  }
  Result<Comm> begin(const NcclId&, int rank) override {
    pass(kBegin);
    return Comm(new int(rank));
  }
  Result<Step> poll(Comm) override {
    pass(kPoll);
    const std::lock_guard lock(s_->mutex);
    if (!s_->broken.ok()) return s_->broken;
    return s_->pending ? Step::kPending : Step::kDone;
  }
  Status send(Comm, const std::byte*, size_t bytes) override {
    pass(kSend);
    const std::lock_guard lock(s_->mutex);
    s_->sent.push_back(bytes);
    return s_->wrong;
  }
  Status receive(Comm comm, std::byte* to, size_t bytes) override { return send(comm, to, bytes); }
  Result<Mark> mark() override {
    const std::lock_guard lock(s_->mutex);
    ++s_->marks;
    return reinterpret_cast<Mark>(++s_->made);
  }
  Result<Step> reached(Mark mark) override {
    const std::lock_guard lock(s_->mutex);
    if (s_->hangs[kReached]) return Step::kPending;
    const bool first = mark == reinterpret_cast<Mark>(size_t{1});
    if (first && std::exchange(s_->first_seems_late, false)) return Step::kPending;
    --s_->marks;
    return Step::kDone;
  }
  void drop(Mark) override {
    const std::lock_guard lock(s_->mutex);
    --s_->marks;
  }
  Status abort(Comm comm) override {
    pass(kAbort, false);
    const std::lock_guard lock(s_->mutex);
    delete static_cast<int*>(comm);
    ++s_->aborted;
    return {};
  }

 private:
  void pass(Call call, bool counted = true) {
    std::unique_lock lock(s_->mutex);
    s_->inside += counted;
    s_->most_inside = std::max(s_->most_inside, s_->inside);
    s_->changed.wait(lock, [&] { return !s_->hangs[call]; });
    s_->inside -= counted;
  }
  std::shared_ptr<State> s_;
};

struct Rig {
  std::shared_ptr<SlowLibrary::State> library = std::make_shared<SlowLibrary::State>();
  std::shared_ptr<QueueStrand> strand = std::make_shared<QueueStrand>();
  std::unique_ptr<NcclThread> thread =
      std::make_unique<NcclThread>(strand, std::make_unique<SlowLibrary>(library));
  std::vector<std::byte> memory = std::vector<std::byte>(64);
  std::vector<std::string> told;

  NcclDriver::Done note(const std::string& what) {
    return [this, what](const Status& s) { told.push_back(s.ok() ? what : what + " failed"); };
  }
  bool comes(const std::string& what) {
    return strand->run_until(
        [&] { return std::find(told.begin(), told.end(), what) != told.end(); });
  }
  // The device has so many moves before it and has ended none of them: for libraries whose marks
  // hang.
  bool device_is_at(int moves) {
    return strand->run_until([&] {
      const std::lock_guard lock(library->mutex);
      return library->marks == moves;
    });
  }
  void open(uint32_t no) {
    thread->open(CommNo{no}, {}, {}, LaneEnd::kPrefill, note("open" + std::to_string(no)));
    REQUIRE(comes("open" + std::to_string(no)));
  }
};

TEST_CASE("moves are told in their order, whenever each was looked at") {
  Rig rig;
  rig.open(1);
  rig.library->set(rig.library->hangs[SlowLibrary::kReached], true);
  rig.thread->send(CommNo{1}, std::span(rig.memory).first(1), rig.note("first"));
  rig.thread->send(CommNo{1}, std::span(rig.memory).first(2), rig.note("second"));
  REQUIRE(rig.device_is_at(2));
  {
    const std::lock_guard lock(rig.library->mutex);
    rig.library->first_seems_late = true;
    rig.library->hangs[SlowLibrary::kReached] = false;
  }
  REQUIRE(rig.comes("second"));
  CHECK(rig.told == std::vector<std::string>{"open1", "first", "second"});
}

TEST_CASE("ids, communicators, moves, aborts: each is answered on the strand") {
  Rig rig;
  bool minted = false;
  rig.thread->mint([&](const Result<NcclId>& id) { minted = id.has_value(); });
  CHECK(rig.strand->run_until([&] { return minted; }));
  rig.open(1);
  for (size_t n = 1; n <= 5; ++n) {
    rig.thread->send(CommNo{1}, std::span(rig.memory).first(n), rig.note("m" + std::to_string(n)));
  }
  CHECK(rig.comes("m5"));
  CHECK(rig.told == std::vector<std::string>{"open1", "m1", "m2", "m3", "m4", "m5"});
  CHECK(rig.library->sent == std::vector<size_t>{1, 2, 3, 4, 5});
  rig.thread->abort(CommNo{1}, rig.note("aborted"));
  CHECK(rig.comes("aborted"));
  rig.thread = nullptr;
  CHECK(rig.library->aborted == 1);
  CHECK(rig.library->marks == 0);
  CHECK(rig.library->most_inside == 1);
}

TEST_CASE("a communicator that fails says so, once, and is left alone but for its abort") {
  Rig rig;
  rig.open(1);
  rig.library->wrong = error(Errc::kInternal, "no");
  rig.thread->send(CommNo{1}, rig.memory, rig.note("a"));
  rig.thread->send(CommNo{1}, rig.memory, rig.note("b"));
  CHECK(rig.comes("a failed"));
  rig.thread->abort(CommNo{1}, rig.note("aborted"));
  CHECK(rig.comes("aborted"));
  CHECK(rig.library->sent.size() == 1);
}

TEST_CASE("a communicator that fails while the device is at it leaves no mark behind") {
  Rig rig;
  rig.open(1);
  rig.library->set(rig.library->hangs[SlowLibrary::kReached], true);
  rig.thread->send(CommNo{1}, rig.memory, rig.note("a"));
  REQUIRE(rig.device_is_at(1));
  {
    const std::lock_guard lock(rig.library->mutex);
    rig.library->broken = error(Errc::kInternal, "the peer is gone");
  }
  CHECK(rig.comes("a failed"));
  rig.thread = nullptr;
  CHECK(rig.library->marks == 0);
}

TEST_CASE("what is under way when the abort comes is not heard of again") {
  Rig rig;
  rig.open(1);
  rig.library->set(rig.library->hangs[SlowLibrary::kReached], true);
  rig.thread->send(CommNo{1}, rig.memory, rig.note("a"));
  REQUIRE(rig.device_is_at(1));
  rig.thread->abort(CommNo{1}, rig.note("aborted"));
  CHECK(rig.comes("aborted"));
  rig.library->set(rig.library->hangs[SlowLibrary::kReached], false);
  rig.thread = nullptr;
  CHECK(rig.told == std::vector<std::string>{"open1", "aborted"});
  CHECK(rig.library->marks == 0);
}

TEST_CASE("no call of ours waits for a library that hangs; an abort holds up no other") {
  Rig rig;
  rig.open(1);
  rig.open(2);
  rig.library->set(rig.library->hangs[SlowLibrary::kAbort], true);
  rig.thread->abort(CommNo{1}, rig.note("one"));
  rig.thread->send(CommNo{2}, rig.memory, rig.note("moved"));
  CHECK(rig.comes("moved"));
  CHECK(rig.told.back() == "moved");
  rig.library->set(rig.library->hangs[SlowLibrary::kSend], true);
  rig.thread->send(CommNo{2}, rig.memory, rig.note("never"));
  rig.thread->abort(CommNo{2}, rig.note("two"));  // waits until the send has returned
  rig.thread->mint([&](const Result<NcclId>&) { rig.told.push_back("minted"); });
  rig.library->set(rig.library->hangs[SlowLibrary::kSend], false);
  CHECK(rig.comes("minted"));
  rig.library->set(rig.library->hangs[SlowLibrary::kAbort], false);
  CHECK(rig.comes("one"));
  CHECK(rig.comes("two"));
  CHECK(std::count(rig.told.begin(), rig.told.end(), "never") == 0);
  CHECK(rig.library->most_inside == 1);
}

TEST_CASE("its end aborts what is open, and leaves what hangs") {
  Rig rig;
  rig.open(1);
  rig.open(2);
  rig.library->set(rig.library->pending, true);
  rig.thread->send(CommNo{2}, rig.memory, rig.note("never"));
  rig.thread = nullptr;
  CHECK(rig.library->aborted == 2);
}

}  // namespace
}  // namespace headrace::worker
