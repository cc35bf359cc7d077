// The whole NCCL side between real processes: NcclPairs on NcclThread on nccl_library.cc on the
// stand-in, which is opened as the real one is. Channels are sockets.
#include "worker/nccl_library.h"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/simt/cudart/control.h"
#include "tests/worker/queue_strand.h"
#include "worker/nccl_lanes.h"
#include "worker/nccl_pairs.h"
#include "worker/nccl_thread.h"

namespace headrace::worker {
namespace {

constexpr size_t kSlotBytes = 1 << 20;
constexpr int kHangSeconds = 90;  // then a rank is ended

// In a rank: ends the process, with the place.
void expect(bool held, const std::string& what = "", int line = __builtin_LINE()) {
  if (held) return;
  std::fprintf(stderr, "process %d: line %d did not hold %s\n", int(getpid()), line, what.c_str());
  _exit(1);
}

// One process: a device, its library, and the channel to the other.
class Rank {
 public:
  Rank(int own, int fd, const NcclOptions& wanted, const std::string& behaviour)
      : end(own == 0 ? LaneEnd::kPrefill : LaneEnd::kDecode), fd_(fd) {
    setenv("HEADRACE_SIMT_NCCL", behaviour.c_str(), 1);
    setenv("HEADRACE_NCCL_LIBRARY", HEADRACE_NCCL_STAND_IN, 1);
    simt::reset(simt::Streams::kThreaded);
    auto library = open_nccl({});
    expect(library.has_value(), library ? "" : library.error().message);
    thread_ = std::make_unique<NcclThread>(strand, std::move(*library));
    NcclOptions options = wanted;
    options.device = uint64_t(1 + own);
    options.slot_bytes = kSlotBytes;
    pairs = std::make_unique<NcclPairs>(strand, *thread_, options);
    fcntl(fd_, F_SETFL, O_NONBLOCK);
  }
  ~Rank() {
    lane = nullptr;
    pairs = nullptr;
    thread_ = nullptr;
  }

  // The terms over the channel, then a lane; tcp: none.
  void meet() {
    const Incarnation peer{9, 9};
    if (end == LaneEnd::kPrefill) {
      const LaneTerms offered = pairs->offer(peer);
      say('T', std::as_bytes(std::span(&offered, 1)));
      expect(until([&] { return heard_terms; }));
      expect(pairs->agree(offered, theirs).ok());
    } else {
      expect(until([&] { return heard_terms; }));
      const LaneTerms answered = pairs->answer(peer, theirs, &why);
      say('T', std::as_bytes(std::span(&answered, 1)));
      theirs.kind = answered.kind;
    }
    if (theirs.kind == LaneKind::kTcp) return;
    PayloadLane::Host host;
    host.tell = [this](const Bytes& note) { say('N', note); };
    host.moved = [this](uint32_t index, size_t bytes) {
      expect(index == moved++ && bytes == kSlotBytes);
    };
    host.failed = [this](const Status& status) { failed = status; };
    host.quiet = [this] { quiet = true; };
    host.lost = [this](const Status&) { lost = true; };
    lane = pairs->lane(end, peer, theirs, std::move(host));
    for (const Bytes& note : early_) expect(lane->heard(note).ok());
  }

  std::byte* slot() {
    void* memory = nullptr;
    expect(cudaMalloc(&memory, kSlotBytes) == cudaSuccess);
    slots_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  void free_slots() {
    for (void* slot : slots_) expect(cudaFree(slot) == cudaSuccess);
  }

  template <class Done>
  bool until(const Done& done, Duration most = 60s) {
    for (const Instant last = strand->now() + most; !done();) {
      if (strand->now() > last) return false;
      read();
      strand->run_until([&] { return done(); }, 1ms);
      if (strand->now() - swept_ < 20ms) continue;
      swept_ = strand->now();
      pairs->sweep();
    }
    return true;
  }

  void say(char kind, std::span<const std::byte> body) {
    Bytes frame;
    frame.reserve(1 + body.size());
    frame.push_back(std::byte(kind));
    frame.insert(frame.end(), body.begin(), body.end());
    send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL);  // who is gone does not hear it
  }

  const LaneEnd end;
  std::shared_ptr<QueueStrand> strand = std::make_shared<QueueStrand>();
  std::unique_ptr<NcclPairs> pairs;
  std::unique_ptr<PayloadLane> lane;
  LaneTerms theirs;
  std::string why;
  uint32_t moved = 0;
  bool heard_terms = false, heard_bye = false, quiet = false, lost = false;
  Status failed;

 private:
  void read() {
    std::byte frame[512];
    for (ssize_t n; (n = recv(fd_, frame, sizeof frame, 0)) > 0;) {
      const std::span<const std::byte> body(frame + 1, size_t(n) - 1);
      switch (char(frame[0])) {
        case 'T':
          std::memcpy(&theirs, body.data(), sizeof theirs);
          heard_terms = true;
          break;
        case 'N':
          if (!lane) {
            early_.emplace_back(body.begin(), body.end());
          } else if (!lane->heard(body).ok()) {
            expect(false, "a note is refused");
          }
          break;
        default:
          heard_bye = true;
      }
    }
  }

  const int fd_;
  std::unique_ptr<NcclThread> thread_;
  std::vector<void*> slots_;
  std::vector<Bytes> early_;
  Instant swept_{};
};

struct Run {
  NcclOptions options;
  std::string behaviour[2];  // of the stand-in, at P and at D
  std::function<void(Rank&)> body;
};

// How both ended: exit status, or 1000 and the signal.
std::vector<int> run_two(const Run& run) {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  std::fflush(nullptr);
  pid_t children[2];
  for (int own = 0; own < 2; ++own) {
    children[own] = fork();
    if (children[own] != 0) continue;
    alarm(kHangSeconds);
    close(fds[1 - own]);
    {
      Rank rank(own, fds[own], run.options, run.behaviour[own]);
      run.body(rank);
    }
    _exit(0);
  }
  for (const int fd : fds) close(fd);
  std::vector<int> ended;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ended.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
  }
  return ended;
}

const std::vector<int> kWell = {0, 0};

// Waits short enough for a test; only where they are to run out.
NcclOptions hasty() {
  return {.ready = 3s, .open = 3s, .progress = 1s, .go = 3s, .abort = 2s, .idle = 60s};
}
NcclOptions patient() {
  return {.ready = 60s, .open = 60s, .progress = 60s, .go = 60s, .abort = 60s, .idle = 60s};
}

std::byte byte_of(uint32_t slot, size_t at) { return std::byte((slot * 37 + at * 11) & 0xFF); }

void post(Rank& rank, uint32_t slot, std::byte* memory) {
  std::vector<std::byte> bytes(kSlotBytes);
  if (rank.end == LaneEnd::kPrefill) {
    for (size_t i = 0; i < kSlotBytes; ++i) bytes[i] = byte_of(slot, i);
  }
  expect(cudaMemcpy(memory, bytes.data(), kSlotBytes, cudaMemcpyHostToDevice) == cudaSuccess);
  rank.lane->post({slot, {memory, kSlotBytes}});
}

bool right(uint32_t slot, const std::byte* memory) {
  std::vector<std::byte> bytes(kSlotBytes);
  expect(cudaMemcpy(bytes.data(), memory, kSlotBytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (size_t i = 0; i < kSlotBytes; ++i) {
    if (bytes[i] != byte_of(slot, i)) return false;
  }
  return true;
}

// Two slots that cannot move; then the lane fails, and what it used is let go.
void in_vain(Rank& rank) {
  rank.meet();
  expect(rank.lane != nullptr);
  for (uint32_t slot = 0; slot < 2; ++slot) post(rank, slot, rank.slot());
  expect(rank.until([&] { return !rank.failed.ok(); }, 20s));
  if (rank.lane->close(LaneEnding::kOver) == LaneState::kBusy) {
    expect(rank.until([&] { return rank.quiet; }, 10s));
  }
  expect(rank.until([&] { return rank.pairs->pairs() == 0; }, 10s));
  expect(rank.pairs->health().ok());
  expect(rank.pairs->offer({9, 9}).kind == LaneKind::kTcp);  // the next attempt
  rank.free_slots();
}

}  // namespace

TEST_CASE("slots from one process's device to another's: every byte, and nothing is left") {
  CHECK(run_two({patient(), {"", ""}, [](Rank& rank) {
                   constexpr uint32_t kSlots = 24;
                   rank.meet();
                   expect(rank.lane != nullptr);
                   std::byte* ring[3] = {rank.slot(), rank.slot(), rank.slot()};
                   uint32_t posted = 0, checked = 0;
                   while (checked < kSlots) {
                     for (; posted < std::min(checked + 3, kSlots); ++posted) {
                       post(rank, posted, ring[posted % 3]);
                     }
                     expect(rank.until([&] { return rank.moved > checked; }));
                     expect(rank.end == LaneEnd::kPrefill || right(checked, ring[checked % 3]));
                     ++checked;
                   }
                   rank.say('B', {});
                   expect(rank.until([&] { return rank.heard_bye; }));
                   expect(rank.lane->close(LaneEnding::kOver) == LaneState::kQuiet);
                   expect(rank.lane->counters().bytes == kSlots * kSlotBytes);
                   expect(rank.pairs->unused_ids() == 0);
                   rank.free_slots();
                 }}) == kWell);
}

TEST_CASE("an init or a send that stalls ends in time at both ends; the next attempt is over tcp") {
  CHECK(run_two({hasty(), {"stall_init", ""}, in_vain}) == kWell);
  CHECK(run_two({hasty(), {"", "stall_init"}, in_vain}) == kWell);
  CHECK(run_two({hasty(), {"stall_send", ""}, in_vain}) == kWell);
}

TEST_CASE("an abort that stalls: the slots are lost, the process says that it is sick") {
  CHECK(run_two({hasty(), {"stall_send stall_abort", ""}, [](Rank& rank) {
                   if (rank.end == LaneEnd::kDecode) return in_vain(rank);
                   rank.meet();
                   for (uint32_t slot = 0; slot < 2; ++slot) post(rank, slot, rank.slot());
                   expect(rank.until([&] { return !rank.failed.ok(); }, 20s));
                   expect(rank.lane->close(LaneEnding::kOver) == LaneState::kBusy);
                   expect(rank.until([&] { return rank.lost; }, 10s));
                   expect(rank.lane->state() == LaneState::kQuarantine);
                   expect(!rank.pairs->health().ok());
                   _exit(0);  // started again
                 }}) == kWell);
}

TEST_CASE("a peer that dies in mid transfer without a word: the other ends in time") {
  const auto ended = run_two({hasty(), {"die_after=70000", "silent"}, [](Rank& rank) {
                                if (rank.end == LaneEnd::kDecode) return in_vain(rank);
                                rank.meet();
                                for (uint32_t slot = 0; slot < 2; ++slot) {
                                  post(rank, slot, rank.slot());
                                }
                                rank.until([] { return false; });
                              }});
  CHECK(ended[0] == 9);  // as die_after ends it
  CHECK(ended[1] == 0);
}

TEST_CASE("libraries of two versions: tcp, with both numbers") {
  CHECK(run_two({patient(), {"", "version=22800"}, [](Rank& rank) {
                   rank.meet();
                   expect(!rank.lane);
                   expect(rank.end == LaneEnd::kPrefill ||
                          rank.why.find("22800") != std::string::npos);
                 }}) == kWell);
}

TEST_CASE("library, thread and pairs as one, and what a start says of it") {
  CHECK(run_two({patient(), {"", ""}, [](Rank& rank) {
                   SeededRandom random(uint64_t(rank.end) + 1);
                   NcclLanesOptions options;
                   auto lanes = make_nccl_lanes(rank.strand, random, options);
                   expect(lanes.has_value());
                   expect((*lanes)->offer({1, 1}).kind == LaneKind::kNccl);
                   expect((*lanes)->offer({1, 1}).host == host_number());
                   expect(nccl_sentence(lanes, options).find("--trust-links") != std::string::npos);
                   options.trust_links = true;
                   expect(nccl_sentence(lanes, options).find("plain text") != std::string::npos);
                 }}) == kWell);
}

// Needs no GPU as long as nothing is opened with it.
TEST_CASE("the real library, where there is one, has all that is taken from it") {
  NcclLibraryOptions options;
  options.path = HEADRACE_NCCL_REAL;
  if (options.path.find('/') == std::string::npos) return;  // none was found
  const auto real = open_nccl(options);
  REQUIRE_MESSAGE(real.has_value(), (real ? "" : real.error().message));
  CHECK((*real)->version() >= 22703);
  CHECK(std::string(std::getenv("NCCL_RAS_ENABLE")) == "0");
}

TEST_CASE("no library, or another one, is a reason in words") {
  const auto why = [](const char* path) {
    NcclLibraryOptions options;
    options.path = path;
    const auto none = open_nccl(options);
    REQUIRE(!none.has_value());
    CHECK(none.error().code == Errc::kUnavailable);
    return none.error().message;
  };
  CHECK(why("/no/such/libnccl.so").find("/no/such/libnccl.so") != std::string::npos);
  CHECK(why("libm.so.6").find("libm.so.6 has no ncclGetVersion") != std::string::npos);
}

}  // namespace headrace::worker
