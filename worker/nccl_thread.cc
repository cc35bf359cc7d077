#include "worker/nccl_thread.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/check.h"

namespace headrace::worker {
namespace {

constexpr auto kPollEvery = std::chrono::microseconds(50);

}  // namespace

struct NcclThread::Body : std::enable_shared_from_this<Body> {
  using Step = NcclLibrary::Step;
  struct Comm {
    CommNo no{};
    NcclId id{};
    int rank = 0;
    Done opened;  // until it is
    NcclLibrary::Comm handle = nullptr;
    bool begun = false;
    bool aborting = false;  // nobody but its abort may call on it
    bool failed = false;
    bool usable() const { return !aborting && !failed; }
  };
  struct Move {
    std::shared_ptr<Comm> comm;
    bool out = false;
    std::byte* memory = nullptr;
    size_t bytes = 0;
    Done done;
    enum { kWaiting, kIssued, kMarked } at = kWaiting;
    NcclLibrary::Mark mark = nullptr;
  };
  using Mint = std::function<void(Result<NcclId>)>;
  using Lock = std::unique_lock<std::mutex>;

  Body(std::shared_ptr<Strand> s, std::unique_ptr<NcclLibrary> l)
      : strand(std::move(s)), library(std::move(l)), version(library->version()) {}

  void run();
  bool work(Lock& lock) { return mint_next(lock) || open_next(lock) || move_on(lock); }
  bool mint_next(Lock& lock);
  bool open_next(Lock& lock);
  bool move_on(Lock& lock);
  Result<Step> step(Lock& lock, Move& move, bool behind);
  void launch(CommNo no, bool out, std::byte* memory, size_t bytes, Done done);
  void abort(CommNo no, Done done);
  void end(const std::shared_ptr<Comm>& comm, const Done& done);

  // Calls without the mutex; meanwhile the communicator's abort waits.
  template <class F>
  auto inside(Lock& lock, const Comm* comm, const F& call) {
    busy = comm;
    lock.unlock();
    auto result = call();
    lock.lock();
    busy = nullptr;
    changed.notify_all();
    return result;
  }
  void tell(const Done& done, Status status) {
    if (left) return;
    strand->post([done, status = std::move(status)] { done(status); });
  }
  bool idle() const {
    const auto opening = [](const auto& c) { return c.second->opened && c.second->usable(); };
    return mints.empty() && moves.empty() && std::none_of(comms.begin(), comms.end(), opening);
  }

  const std::shared_ptr<Strand> strand;
  std::unique_ptr<NcclLibrary> library;
  uint32_t version = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Mint> mints;
  std::map<CommNo, std::shared_ptr<Comm>> comms;
  std::deque<std::shared_ptr<Move>> moves;  // in the order of their calls
  const Comm* busy = nullptr;
  bool stopping = false;
  bool stopped = false;
  bool left = false;  // nobody is there to be told
};

void NcclThread::Body::run() {
  Lock lock(mutex);
  while (!stopping) {
    if (work(lock)) continue;
    if (idle()) {
      changed.wait(lock);
    } else {
      changed.wait_for(lock, kPollEvery);
    }
  }
  stopped = true;
  changed.notify_all();
}

bool NcclThread::Body::mint_next(Lock& lock) {
  if (mints.empty()) return false;
  const Mint done = std::move(mints.front());
  mints.pop_front();
  Result<NcclId> id = inside(lock, nullptr, [&] { return library->mint(); });
  if (!left) strand->post([done, id = std::move(id)] { done(id); });
  return true;
}

bool NcclThread::Body::open_next(Lock& lock) {
  const auto all = comms;  // the abort of one takes it away
  for (const auto& [no, comm] : all) {
    if (!comm->opened || !comm->usable()) continue;
    Status status;
    bool pending = true;
    if (!std::exchange(comm->begun, true)) {
      auto begun = inside(lock, comm.get(), [&, c = comm] {
        auto handle = library->begin(c->id, c->rank);
        if (handle) c->handle = *handle;  // its abort waits for it
        return handle;
      });
      if (!begun) status = std::move(begun).error();
    } else {
      auto polled = inside(lock, comm.get(), [&, c = comm] { return library->poll(c->handle); });
      if (polled) pending = *polled == Step::kPending;
      if (!polled) status = std::move(polled).error();
    }
    if (comm->aborting || (status.ok() && pending)) continue;
    comm->failed = !status.ok();
    tell(std::exchange(comm->opened, nullptr), std::move(status));
    return true;
  }
  return false;
}

// What is not marked yet is issued, polled and marked before the next is looked at, so the device
// gets all of it in order. They end in that order, too, but looked at one after the other a later
// one may seem to be the first: it is not asked while one before it is under way.
bool NcclThread::Body::move_on(Lock& lock) {
  const auto all = moves;
  bool behind = false;
  for (const auto& move : all) {
    if (!move->comm->usable()) continue;
    const auto before = move->at;
    Result<Step> result = step(lock, *move, behind);
    if (!move->comm->usable()) return true;  // meanwhile
    if (!result) move->comm->failed = true;
    if (!result || *result == Step::kDone) {
      std::erase(moves, move);
      tell(move->done, result ? Status() : std::move(result).error());
      return true;
    }
    if (move->at != before) return true;
    if (move->at != Move::kMarked) return false;
    behind = true;
  }
  return false;
}

Result<NcclLibrary::Step> NcclThread::Body::step(Lock& lock, Move& move, bool behind) {
  return inside(lock, move.comm.get(), [&]() -> Result<Step> {
    NcclLibrary& nccl = *library;
    const NcclLibrary::Comm comm = move.comm->handle;
    if (move.at == Move::kWaiting) {
      Status wrong = move.out ? nccl.send(comm, move.memory, move.bytes)
                              : nccl.receive(comm, move.memory, move.bytes);
      if (!wrong.ok()) return wrong;
      move.at = Move::kIssued;
      return Step::kPending;
    }
    if (move.at == Move::kIssued) {
      Result<Step> polled = nccl.poll(comm);
      if (!polled || *polled == Step::kPending) return polled;
      auto mark = nccl.mark();
      if (!mark) return std::move(mark).error();
      move.mark = *mark;
      move.at = Move::kMarked;
      return Step::kPending;
    }
    // An error of the communicator's tells why the device does not come to it.
    if (Result<Step> polled = nccl.poll(comm); !polled) {
      nccl.drop(std::exchange(move.mark, nullptr));
      return polled;
    }
    if (behind) return Step::kPending;
    Result<Step> reached = nccl.reached(move.mark);
    if (!reached || *reached == Step::kDone) move.mark = nullptr;
    return reached;
  });
}

void NcclThread::Body::launch(CommNo no, bool out, std::byte* memory, size_t bytes, Done done) {
  const Lock lock(mutex);
  const auto comm = comms.find(no);
  CHECK(comm != comms.end() && !comm->second->opened && !comm->second->aborting);
  moves.push_back(std::make_shared<Move>(
      Move{comm->second, out, memory, bytes, std::move(done), Move::kWaiting, nullptr}));
  changed.notify_all();
}

void NcclThread::Body::abort(CommNo no, Done done) {
  const Lock lock(mutex);
  const auto it = comms.find(no);
  CHECK(it != comms.end() && !it->second->aborting);
  it->second->aborting = true;
  it->second->opened = nullptr;
  changed.notify_all();
  std::thread([self = shared_from_this(), comm = it->second, done = std::move(done)] {
    self->end(comm, done);
  }).detach();
}

// On a thread of its own, for as long as it takes.
void NcclThread::Body::end(const std::shared_ptr<Comm>& comm, const Done& done) {
  Lock lock(mutex);
  changed.wait(lock, [&] { return busy != comm.get(); });
  lock.unlock();
  Status status;
  if (comm->handle) status = library->abort(comm->handle);
  lock.lock();
  std::vector<NcclLibrary::Mark> marks;
  std::erase_if(moves, [&](const std::shared_ptr<Move>& move) {
    if (move->comm == comm && move->mark) marks.push_back(move->mark);
    return move->comm == comm;
  });
  lock.unlock();  // the device's driver may wait
  for (const NcclLibrary::Mark mark : marks) library->drop(mark);
  lock.lock();
  comms.erase(comm->no);
  changed.notify_all();
  tell(done, std::move(status));
}

NcclThread::NcclThread(std::shared_ptr<Strand> strand, std::unique_ptr<NcclLibrary> library)
    : body_(std::make_shared<Body>(std::move(strand), std::move(library))) {
  std::thread([body = body_] { body->run(); }).detach();
}

NcclThread::~NcclThread() {
  Body::Lock lock(body_->mutex);
  body_->left = true;
  std::vector<CommNo> open;
  for (const auto& [no, comm] : body_->comms) {
    if (!comm->aborting) open.push_back(no);
  }
  lock.unlock();
  for (const CommNo no : open) body_->abort(no, [](const Status&) {});
  lock.lock();
  body_->changed.wait_for(lock, kLeaveAfter, [&] { return body_->comms.empty(); });
  body_->stopping = true;
  body_->changed.notify_all();
  body_->changed.wait_for(lock, kLeaveAfter, [&] { return body_->stopped; });
  // Here, not on the last thread that lets go: that one may run while the process ends.
  if (body_->stopped && body_->comms.empty()) body_->library.reset();
}

uint32_t NcclThread::version() const { return body_->version; }

void NcclThread::mint(std::function<void(Result<NcclId>)> done) {
  const Body::Lock lock(body_->mutex);
  body_->mints.push_back(std::move(done));
  body_->changed.notify_all();
}

void NcclThread::open(CommNo no, const CommName&, const NcclId& id, LaneEnd end, Done done) {
  const Body::Lock lock(body_->mutex);
  auto comm = std::make_shared<Body::Comm>();
  comm->no = no;
  comm->id = id;
  comm->rank = end == LaneEnd::kPrefill ? 0 : 1;
  comm->opened = std::move(done);
  CHECK(body_->comms.emplace(no, std::move(comm)).second);
  body_->changed.notify_all();
}

void NcclThread::send(CommNo comm, std::span<const std::byte> from, Done done) {
  // NCCL only reads it; one kind of move knows one kind of memory.
  body_->launch(comm, true, const_cast<std::byte*>(from.data()), from.size(), std::move(done));
}

void NcclThread::receive(CommNo comm, std::span<std::byte> to, Done done) {
  body_->launch(comm, false, to.data(), to.size(), std::move(done));
}

void NcclThread::abort(CommNo comm, Done done) { body_->abort(comm, std::move(done)); }

}  // namespace headrace::worker
