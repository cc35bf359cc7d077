// gpu_nccl [--devices A,B] [--mib N]: KV over NCCL, as rows of JSON. One rank: the library's own
// send to itself. Two ranks, each a process: the hand-off's lane (worker/nccl_pairs.h) from slot to
// slot.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/worker/queue_strand.h"
#include "worker/nccl_lanes.h"
#include "worker/nccl_pairs.h"
#include "worker/nccl_thread.h"

namespace headrace::gpu {
namespace {

using namespace worker;
using Json = nlohmann::ordered_json;

constexpr size_t kSlotBytes = size_t{8} << 20;
constexpr uint32_t kRing = 4;  // slots at a time, as a hand-off has
constexpr int kHangSeconds = 60;
constexpr uint32_t kSharesGpu = 23000;  // from this version on two ranks may use one GPU
constexpr int kRounds = 5;
constexpr unsigned char kByte = 0xa7;
constexpr size_t kChecked = 4096;  // bytes that are looked at

void must(bool held, const std::string& what) {
  if (!held) throw std::runtime_error(what);
}
void must(cudaError_t code, const char* what) {
  must(code == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(code));
}

void emit(const Json& row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// --- one rank

template <class F>
F function(void* library, const char* name) {
  void* const found = dlsym(library, name);
  must(found != nullptr, std::string("NCCL has no ") + name);
  return reinterpret_cast<F>(found);
}

// The library's send to the rank's own receive: what NCCL does where no link is in between.
void send_to_itself(int ordinal, size_t bytes) {
  const char* const named = std::getenv("HEADRACE_NCCL_LIBRARY");
  const std::string path = named != nullptr && *named ? named : "libnccl.so.2";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  must(library != nullptr, path + " cannot be opened");
#define HEADRACE_NCCL(name) const auto name = function<decltype(&nccl##name)>(library, "nccl" #name)
  HEADRACE_NCCL(GetVersion);
  HEADRACE_NCCL(GetUniqueId);
  HEADRACE_NCCL(CommInitRankConfig);
  HEADRACE_NCCL(CommGetAsyncError);
  HEADRACE_NCCL(GroupStart);
  HEADRACE_NCCL(GroupEnd);
  HEADRACE_NCCL(Send);
  HEADRACE_NCCL(Recv);
  HEADRACE_NCCL(CommAbort);
  HEADRACE_NCCL(GetErrorString);
#undef HEADRACE_NCCL
  const auto nccl = [&](ncclResult_t code, const char* what) {
    must(code == ncclSuccess || code == ncclInProgress,
         std::string(what) + ": " + GetErrorString(code));
  };
  int version = 0;
  nccl(GetVersion(&version), "a version");
  must(cudaSetDevice(ordinal), "the device");
  ncclUniqueId id;
  nccl(GetUniqueId(&id), "an id");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  nccl(CommInitRankConfig(&comm, 1, id, 0, &config), "a communicator of one");
  const auto through = [&](const char* what) {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
      nccl(CommGetAsyncError(comm, &state), what);
      nccl(state, what);
    }
  };
  through("a communicator of one");
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  void *from = nullptr, *to = nullptr;
  must(cudaMalloc(&from, bytes), "memory");
  must(cudaMalloc(&to, bytes), "memory");
  std::vector<unsigned char> sent(kChecked, kByte), got(kChecked);
  must(cudaMemcpy(from, sent.data(), kChecked, cudaMemcpyHostToDevice), "a copy");
  double best = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    const double begun = now();
    nccl(GroupStart(), "a group");
    nccl(Send(from, bytes, ncclUint8, 0, comm, stream), "send");
    nccl(Recv(to, bytes, ncclUint8, 0, comm, stream), "receive");
    nccl(GroupEnd(), "a group");
    through("send and receive");
    must(cudaStreamSynchronize(stream), "the device");
    best = std::min(best, now() - begun);
  }
  must(cudaMemcpy(got.data(), to, kChecked, cudaMemcpyDeviceToHost), "a copy");
  must(got == sent, "other bytes came than were sent");
  nccl(CommAbort(comm), "an end");
  emit({{"nccl", version},
        {"ranks", 1},
        {"what", "send to itself"},
        {"bytes", bytes},
        {"seconds", best}});
}

// --- two ranks

// One process of a pair, with the channel to the other.
class Rank {
 public:
  Rank(LaneEnd own, int fd, int ordinal, bool patient) : end_(own), fd_(fd) {
    must(cudaSetDevice(ordinal), "the device");
    NcclLibraryOptions options;
    options.ordinal = ordinal;
    auto library = open_nccl(options);
    must(library.has_value(), library ? "" : library.error().message);
    version_ = (*library)->version();
    thread_ = std::make_unique<NcclThread>(strand_, std::move(*library));
    NcclOptions pairs;
    pairs.device = 1 + static_cast<uint64_t>(own);
    pairs.slot_bytes = kSlotBytes;
    if (patient)
      pairs.ready = pairs.open = pairs.progress = pairs.go = pairs.abort = 1s * kHangSeconds;
    pairs_ = std::make_unique<NcclPairs>(strand_, *thread_, pairs);
    fcntl(fd_, F_SETFL, O_NONBLOCK);
  }
  ~Rank() {
    lane_ = nullptr;
    pairs_ = nullptr;
    thread_ = nullptr;
  }
  uint32_t version() const { return version_; }

  void meet() {
    const Incarnation peer{9, 9};
    LaneTerms own;
    if (end_ == LaneEnd::kPrefill) say('T', own = pairs_->offer(peer));
    until([&] { return heard_terms_; }, "terms");
    std::string why;
    if (end_ == LaneEnd::kDecode) say('T', own = pairs_->answer(peer, theirs_, &why));
    must(own.kind == LaneKind::kNccl && theirs_.kind == LaneKind::kNccl, "no lane: " + why);
    PayloadLane::Host host;
    host.tell = [this](const Bytes& note) { say('N', std::span<const std::byte>(note)); };
    host.moved = [this](uint32_t, size_t) { ++moved_; };
    host.failed = [this](const Status& status) { failed_ = status; };
    lane_ = pairs_->lane(end_, peer, theirs_, std::move(host));
    for (const Bytes& note : early_) must(lane_->heard(note).ok(), "a note is refused");
    for (uint32_t i = 0; i < kRing; ++i) {
      void* memory = nullptr;
      must(cudaMalloc(&memory, kSlotBytes), "memory");
      must(cudaMemset(memory, end_ == LaneEnd::kPrefill ? kByte : 0, kSlotBytes), "memory");
      ring_.push_back(static_cast<std::byte*>(memory));
    }
  }

  // Seconds from the first slot posted to the last one moved.
  double move(uint32_t slots) {
    const double begun = now();
    for (const uint32_t first = moved_; moved_ - first < slots;) {
      for (; posted_ - first < slots && posted_ - moved_ < kRing; ++posted_)
        lane_->post({posted_, {ring_[posted_ % kRing], kSlotBytes}});
      until([&, before = moved_] { return moved_ > before; }, "a slot");
    }
    return now() - begun;
  }
  // Both come here before either goes on.
  void together() {
    say('B', std::span<const std::byte>());
    ++met_;
    until([&] { return byes_ >= met_; }, "the other rank");
  }
  void close() {
    std::vector<unsigned char> got(kSlotBytes);
    must(cudaMemcpy(got.data(), ring_[0], kSlotBytes, cudaMemcpyDeviceToHost), "a copy");
    must(got == std::vector<unsigned char>(kSlotBytes, kByte), "other bytes came than were sent");
    if (lane_->close(LaneEnding::kOver) == LaneState::kBusy)
      until([&] { return lane_->state() != LaneState::kBusy; }, "the lane's end");
  }

 private:
  template <class Done>
  void until(const Done& done, const std::string& what) {
    while (!done()) {
      must(failed_.ok(), what + ": " + failed_.message);
      read();
      strand_->run_until(done, 1ms);
      if (strand_->now() - swept_ < 20ms) continue;
      swept_ = strand_->now();
      pairs_->sweep();
    }
  }
  void say(char kind, const LaneTerms& terms) { say(kind, std::as_bytes(std::span(&terms, 1))); }
  void say(char kind, std::span<const std::byte> body) {
    Bytes frame;
    frame.reserve(1 + body.size());
    frame.push_back(std::byte(kind));
    frame.insert(frame.end(), body.begin(), body.end());
    send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL);  // who is gone does not hear it
  }
  void read() {
    std::byte frame[512];
    for (ssize_t n; (n = recv(fd_, frame, sizeof frame, 0)) > 0;) {
      const std::span<const std::byte> body(frame + 1, static_cast<size_t>(n) - 1);
      switch (static_cast<char>(frame[0])) {
        case 'T':
          must(body.size() == sizeof theirs_, "terms of another size");
          std::memcpy(&theirs_, body.data(), sizeof theirs_);
          heard_terms_ = true;
          break;
        case 'N':
          if (lane_) {
            must(lane_->heard(body).ok(), "a note is refused");
          } else {
            early_.emplace_back(body.begin(), body.end());
          }
          break;
        default:
          ++byes_;
      }
    }
  }

  const LaneEnd end_;
  const int fd_;
  uint32_t version_ = 0;
  std::shared_ptr<QueueStrand> strand_ = std::make_shared<QueueStrand>();
  std::unique_ptr<NcclThread> thread_;
  std::unique_ptr<NcclPairs> pairs_;
  std::unique_ptr<PayloadLane> lane_;
  std::vector<std::byte*> ring_;
  std::vector<Bytes> early_;
  LaneTerms theirs_;
  bool heard_terms_ = false;
  uint32_t moved_ = 0, posted_ = 0, byes_ = 0, met_ = 0;
  Status failed_;
  Instant swept_{};
};

struct Options {
  std::vector<int> devices{0, 0};
  uint32_t mib = 1024;
  bool patient = false;  // waits as long as a busy emulator may take
  size_t bytes() const { return size_t{mib} << 20; }
};

void hand_off(LaneEnd own, int fd, const Options& options) {
  const std::vector<int>& devices = options.devices;
  const auto slots = static_cast<uint32_t>(std::max(options.bytes() / kSlotBytes, size_t{1}));
  Rank rank(own, fd, devices[static_cast<size_t>(own)], options.patient);
  const bool speaks = own == LaneEnd::kDecode;
  const Json head{{"nccl", rank.version()},
                  {"ranks", 2},
                  {"what", devices[0] == devices[1] ? "hand-off, one GPU" : "hand-off, two GPUs"}};
  if (devices[0] == devices[1] && rank.version() < kSharesGpu) {
    Json row = head;
    row["left_out"] = "NCCL takes two ranks on one GPU from 2.30 on";
    if (speaks) emit(row);
    return;
  }
  rank.meet();
  rank.move(kRing);  // opens the communicator
  double best = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    rank.together();
    best = std::min(best, rank.move(slots));
  }
  rank.together();
  rank.close();
  Json row = head;
  row["bytes"] = slots * kSlotBytes;
  row["seconds"] = best;
  if (speaks) emit(row);
}

// Runs it in a process of its own: NCCL and CUDA do not survive a fork.
pid_t apart(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(kHangSeconds);
  int status = 0;
  try {
    body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_nccl: %s\n", e.what());
    status = 1;
  }
  std::fflush(nullptr);
  _exit(status);
}

bool well(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int run_self(const Options& options) {
  return well(apart([&] { send_to_itself(options.devices[0], options.bytes()); })) ? 0 : 1;
}

int run_pair(const Options& options) {
  int fds[2];
  must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0, "no sockets");
  pid_t ranks[2];
  for (const LaneEnd end : {LaneEnd::kPrefill, LaneEnd::kDecode}) {
    const auto own = static_cast<size_t>(end);
    ranks[own] = apart([&] {
      ::close(fds[1 - own]);
      hand_off(end, fds[own], options);
    });
  }
  for (const int fd : fds) ::close(fd);
  bool good = true;
  for (const pid_t rank : ranks) good = well(rank) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace headrace::gpu

int main(int argc, char** argv) {
  CLI::App program("KV over NCCL");
  std::string what;
  headrace::gpu::Options options;
  program.add_option("what", what, "self or pair")
      ->required()
      ->check(CLI::IsMember({"self", "pair"}));
  program.add_option("--devices", options.devices, "The two ranks' GPUs")
      ->delimiter(',')
      ->expected(2);
  program.add_option("--mib", options.mib, "So much at a time")->check(CLI::Range(1, 16384));
  program.add_flag("--patient", options.patient, "pair: no wait of the hand-off's runs out");
  CLI11_PARSE(program, argc, argv);
  return what == "self" ? headrace::gpu::run_self(options) : headrace::gpu::run_pair(options);
}
