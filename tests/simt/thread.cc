#include "tests/simt/thread.h"

#include <cstring>

#include "tests/simt/block.h"
#include "tests/simt/order.h"
#include "tests/simt/sanitizers.h"

namespace headrace::simt {

std::string to_string(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

FaultError fault(const Lane& lane, Site at, const std::string& what) {
  const dim3 grid = lane.block->grid().launch.grid;
  const unsigned block = lane.here.block;
  std::string text = std::string(lane.here.kernel) + ", block " + std::to_string(block);
  if (grid.y * grid.z > 1) {
    text += " (" + std::to_string(block % grid.x) + "," + std::to_string(block / grid.x % grid.y) +
            "," + std::to_string(block / grid.x / grid.y) + ")";
  }
  text += ", thread " + std::to_string(lane.index);
  if (at.line > 0) text += ", " + to_string(at);
  return {text + ": " + what};
}

// Of the lane that runs.
template <class What>
static void ask(const char* call, Site at, const What& what) {
  Lane& lane = *running;
  lane.ask(call, at, [&] { what(lane); });
}

void misuse(const char* what, Site at) {
  Lane& lane = *running;
  lane.ask("", at, [&] { throw fault(lane, at, what); });
  __builtin_unreachable();
}

bool in_shared(const void* memory, size_t bytes) {
  const char* first = static_cast<const char*>(memory);
  return first >= here->shared && first + bytes <= here->shared + here->shared_bytes;
}

void* shared_memory(size_t bytes, Site at) {
  if (bytes > here->shared_bytes) {
    misuse("the launch gives fewer bytes of shared memory than the kernel's type has", at);
  }
  return here->shared;
}

void block_barrier(Site at) {
  ask("syncthreads", at, [&](Lane& lane) { lane.block->wait_at_barrier(lane); });
}

bool copies_are_late() { return current_order().late_copies; }

void hold_copy(const HeldCopy& copy) {
  sanitizers::release(&running->issue_word);
  running->copies.push_back(copy);
}
void commit_copies(Site) { running->groups.push_back(running->copies.size()); }

bool take_copy(int pending, HeldCopy* copy) {
  Lane& lane = *running;
  if (lane.copying) {
    lane.block->end_engine(&lane.done_word);
    sanitizers::acquire(&lane.done_word);
    lane.copying = false;
  }
  const size_t kept = static_cast<size_t>(pending);
  if (lane.groups.size() <= kept) return false;
  const size_t due = lane.groups.size() - kept;  // groups
  const size_t end = lane.groups[due - 1];
  if (lane.copies_taken < end) {
    *copy = lane.copies[lane.copies_taken++];
    lane.block->become_engine(lane);
    lane.copying = true;
    return true;
  }
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + static_cast<std::ptrdiff_t>(end));
  lane.groups.erase(lane.groups.begin(), lane.groups.begin() + static_cast<std::ptrdiff_t>(due));
  for (size_t& group : lane.groups) group -= end;
  lane.copies_taken = 0;
  return false;
}

void barrier_init(uint64_t* bar, uint32_t arrivals, Site at) {
  ask("mbar_init", at, [&](Lane& lane) { lane.block->bulk().init(lane, bar, arrivals); });
}

void barrier_fence(Site at) {
  ask("mbar_fence_init", at, [&](Lane& lane) { lane.block->bulk().fence(); });
}

void barrier_invalidate(uint64_t* bar, Site at) {
  ask("mbar_invalidate", at, [&](Lane& lane) { lane.block->bulk().invalidate(lane, bar); });
}

void barrier_arrive(uint64_t* bar, uint32_t bytes, Site at) {
  Lane& lane = *running;
  const char* call = bytes ? "mbar_expect_tx" : "mbar_arrive";
  lane.ask(call, at, [&] { lane.block->bulk().arrive(lane, bar, bytes); });
}

void barrier_wait(uint64_t* bar, uint32_t parity, Site at) {
  ask("mbar_wait", at, [&](Lane& lane) { lane.block->bulk().wait(lane, bar, parity); });
}

void bulk_copy(const BulkCopy& copy) {
  ask("bulk_to_shared", copy.at, [&](Lane& lane) { lane.block->bulk().copy(lane, copy); });
}

void dependency_wait(Site at) {
  ask("grid_dependency_wait", at, [&](Lane& lane) { lane.block->wait_for_front(lane); });
}

void dependency_trigger(Site at) {
  ask("grid_dependency_trigger", at, [&](Lane& lane) { lane.block->trigger(lane); });
}

}  // namespace headrace::simt
