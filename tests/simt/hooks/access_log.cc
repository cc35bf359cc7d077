#include "tests/simt/hooks/access_log.h"

#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "kernels/check.h"
#include "tests/simt/cudart/control.h"
#include "tests/simt/thread.h"

extern "C" const char __executable_start;  // of the linker

namespace headrace::simt {
namespace {

constexpr unsigned kWarp = 32;
constexpr uintptr_t kSector = 32;
constexpr uintptr_t kBanks = 32;
constexpr uintptr_t kWord = 4;
constexpr uintptr_t kPage = 4096;

struct Access {
  uintptr_t code = 0;
  uintptr_t address = 0;
  unsigned block = 0;
  unsigned thread = 0;
  unsigned size = 0;
  bool write = false;
  bool shared = false;
  unsigned time = 0;  // how often the thread had been there before

  auto by_thread() const { return std::tie(code, block, thread); }
  auto by_warp() const { return std::tuple(code, block, thread / kWarp, time); }
};
using Warp = std::vector<Access>;

bool recording = false;
std::vector<Access> log;

void touch(const void* code, const void* address, size_t size, bool write) {
  if (!recording || !here) return;
  recording = false;  // what follows may be instrumented
  log.push_back({reinterpret_cast<uintptr_t>(code), reinterpret_cast<uintptr_t>(address),
                 here->block, here->thread, static_cast<unsigned>(size), write,
                 in_shared(address, size)});
  recording = true;
}

// All but shared and device memory: stacks, the emulator's own.
void drop_the_rest(std::vector<Access>& accesses) {
  Range last;
  std::erase_if(accesses, [&](const Access& a) {
    if (a.shared) return false;
    if (a.address - last.base >= last.bytes) {
      last = find_range(reinterpret_cast<const void*>(a.address));
      if (last.memory == Memory::kNone) last = {};
    }
    return a.address - last.base >= last.bytes;
  });
}

std::vector<Warp> warps_of(std::vector<Access> accesses) {
  std::stable_sort(accesses.begin(), accesses.end(),
                   [](const Access& a, const Access& b) { return a.by_thread() < b.by_thread(); });
  for (size_t i = 1; i < accesses.size(); i++) {
    const Access& before = accesses[i - 1];
    if (before.by_thread() == accesses[i].by_thread()) accesses[i].time = before.time + 1;
  }
  std::stable_sort(accesses.begin(), accesses.end(),
                   [](const Access& a, const Access& b) { return a.by_warp() < b.by_warp(); });
  std::vector<Warp> warps;
  for (const Access& a : accesses) {
    if (warps.empty() || warps.back().front().by_warp() != a.by_warp()) warps.emplace_back();
    warps.back().push_back(a);
  }
  return warps;
}

// Distinct pieces of `unit` bytes that the accesses [first, last) lie in.
std::set<uintptr_t> pieces(const Warp& warp, size_t first, size_t last, uintptr_t unit) {
  std::set<uintptr_t> out;
  for (size_t i = first; i < last; i++) {
    for (uintptr_t at = warp[i].address / unit; at <= (warp[i].address + warp[i].size - 1) / unit;
         at++) {
      out.insert(at);
    }
  }
  return out;
}

void count_global(const Warp& warp, LineUse& use) {
  use.units += pieces(warp, 0, warp.size(), kSector).size();
  use.least += (pieces(warp, 0, warp.size(), 1).size() + kSector - 1) / kSector;
}

void count_shared(const Warp& warp, LineUse& use) {
  const unsigned lanes = kWarp / std::max(1u, warp[0].size / static_cast<unsigned>(kWord));
  for (size_t first = 0; first < warp.size();) {
    const unsigned part = warp[first].thread / lanes;
    size_t last = first;
    while (last < warp.size() && warp[last].thread / lanes == part) last++;
    const std::set<uintptr_t> words = pieces(warp, first, last, kWord);
    uint64_t of_bank[kBanks] = {};
    for (const uintptr_t word : words) of_bank[word % kBanks]++;
    use.units += *std::max_element(of_bank, of_bank + kBanks);
    use.least += (words.size() + kBanks - 1) / kBanks;
    first = last;
  }
}

// The kernel source's line of each place in the code: of functions inlined there, the innermost
// whose file is a .cu.
std::map<uintptr_t, std::string> lines_of(const std::set<uintptr_t>& codes) {
  std::string command = "addr2line -a -i -e /proc/" + std::to_string(getpid()) + "/exe";
  for (const uintptr_t code : codes) {
    char text[32];
    // A return address: its call lies before it.
    std::snprintf(text, sizeof(text), " 0x%zx",
                  code - 1 - reinterpret_cast<uintptr_t>(&__executable_start));
    command += text;
  }
  std::map<uintptr_t, std::string> out;
  FILE* pipe = popen(command.c_str(), "r");
  KERNELS_CHECK(pipe);
  char text[1024];
  auto code = codes.begin();
  bool begun = false;
  while (std::fgets(text, sizeof(text), pipe)) {
    std::string line(text);
    line.erase(line.find_last_not_of('\n') + 1);
    if (line.starts_with("0x")) {
      if (begun) ++code;
      begun = true;
      continue;
    }
    std::string& known = out[*code];
    if (known.find(".cu:") != std::string::npos) continue;
    known = line.substr(line.rfind('/') + 1);
    known.erase(std::min(known.size(), known.find(' ')));
  }
  KERNELS_CHECK(pclose(pipe) == 0);
  return out;
}

// Bytes and sectors touched, each once, by page.
class Touched {
 public:
  void add(const Access& a) {
    for (uintptr_t at = a.address; at < a.address + a.size; at++) {
      pages_[at / kPage].set(at % kPage);
    }
  }
  void count(Traffic& traffic) const {
    for (const auto& [page, bytes] : pages_) {
      traffic.distinct_bytes += bytes.count();
      for (uintptr_t first = 0; first < kPage; first += kSector) {
        bool any = false;
        for (uintptr_t at = first; at < first + kSector; at++) any |= bytes[at];
        traffic.distinct_sectors += any;
      }
    }
  }

 private:
  std::unordered_map<uintptr_t, std::bitset<kPage>> pages_;
};

struct BufferCount {
  BufferUse use;
  Touched read, written;
};

// Allocations last touched are found first.
class Buffers {
 public:
  void add(const Warp& warp) {
    for (const Access& a : warp) {
      if (!last_ || a.address - last_->use.base >= last_->use.size) find(a.address);
      (a.write ? last_->written : last_->read).add(a);
    }
    // A warp's access lies in one buffer but for odd kernels; it counts in that of its last lane.
    Traffic& traffic = warp.front().write ? last_->use.written : last_->use.read;
    traffic.bytes += pieces(warp, 0, warp.size(), 1).size();
  }
  std::vector<BufferUse> counted() {
    std::vector<BufferUse> out;
    for (auto& [base, count] : counts_) {
      count.read.count(count.use.read);
      count.written.count(count.use.written);
      out.push_back(count.use);
    }
    return out;
  }

 private:
  void find(uintptr_t address) {
    const Range range = find_range(reinterpret_cast<const void*>(address));
    last_ = &counts_[range.base];
    last_->use.base = range.base;
    last_->use.size = range.bytes;
  }

  std::map<uintptr_t, BufferCount> counts_;
  BufferCount* last_ = nullptr;
};

}  // namespace

Accesses record(const std::function<void()>& run) {
  log.clear();
  recording = true;
  run();
  recording = false;
  std::vector<Access> accesses = std::move(log);
  drop_the_rest(accesses);
  Accesses out;
  std::set<uintptr_t> codes;
  for (const Access& a : accesses) codes.insert(a.code);
  const std::map<uintptr_t, std::string> lines = lines_of(codes);
  std::map<std::tuple<std::string, bool, bool>, LineUse> uses;
  Buffers buffers;
  for (const Warp& warp : warps_of(std::move(accesses))) {
    const Access& a = warp.front();
    LineUse& use = uses[{lines.at(a.code), a.shared, a.write}];
    use.accesses++;
    for (const Access& lane : warp) use.bytes += lane.size;
    a.shared ? count_shared(warp, use) : count_global(warp, use);
    if (!a.shared) buffers.add(warp);
  }
  for (auto& [key, use] : uses) {
    std::tie(use.line, use.shared, use.write) = key;
    out.lines.push_back(use);
  }
  out.buffers = buffers.counted();
  for (const BufferUse& use : out.buffers) {
    out.bytes_read += use.read.distinct_bytes;
    out.bytes_written += use.written.distinct_bytes;
  }
  return out;
}

BufferUse Accesses::of(const void* address) const {
  for (const BufferUse& use : buffers) {
    if (reinterpret_cast<uintptr_t>(address) - use.base < use.size) return use;
  }
  return {};
}

}  // namespace headrace::simt

// What the thread sanitizer's instrumentation calls.
#define HEADRACE_HOOK(kind, suffix, write)                                \
  extern "C" void __tsan_##kind##suffix(void* p);                         \
  extern "C" void __tsan_##kind##suffix(void* p) {                        \
    headrace::simt::touch(__builtin_return_address(0), p, suffix, write); \
  }
#define HEADRACE_HOOKS(size)                 \
  HEADRACE_HOOK(read, size, false)           \
  HEADRACE_HOOK(write, size, true)           \
  HEADRACE_HOOK(unaligned_read, size, false) \
  HEADRACE_HOOK(unaligned_write, size, true)
HEADRACE_HOOKS(1)
HEADRACE_HOOKS(2)
HEADRACE_HOOKS(4)
HEADRACE_HOOKS(8)
HEADRACE_HOOKS(16)

// An atomic is one access, a write: its load is part of the same instruction.
#define HEADRACE_ATOMIC_HOOKS(bits, type)                                                         \
  extern "C" type __tsan_atomic##bits##_load(const type* p, int order);                           \
  extern "C" type __tsan_atomic##bits##_load(const type* p, int) {                                \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                               \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(type* p, type* before, type after, \
                                                               int, int);                         \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(type* p, type* before, type after, \
                                                               int, int) {                        \
    headrace::simt::touch(__builtin_return_address(0), p, sizeof(type), true);                    \
    return __atomic_compare_exchange_n(p, before, after, false, __ATOMIC_SEQ_CST,                 \
                                       __ATOMIC_SEQ_CST);                                         \
  }
HEADRACE_ATOMIC_HOOKS(32, uint32_t)
HEADRACE_ATOMIC_HOOKS(64, uint64_t)

extern "C" {
void __tsan_init();
void __tsan_func_entry(void*);
void __tsan_func_exit();
void __tsan_read_range(void* p, size_t size);
void __tsan_write_range(void* p, size_t size);

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, size_t size) {
  headrace::simt::touch(__builtin_return_address(0), p, size, false);
}
void __tsan_write_range(void* p, size_t size) {
  headrace::simt::touch(__builtin_return_address(0), p, size, true);
}
}
