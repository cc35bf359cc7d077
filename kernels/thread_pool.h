#pragma once

#include <cstdint>

namespace headrace::kernels {

// Threads that share out the work of one operation at a time. The caller is thread 0 and works too.
//
// Work is cut into chunks; each thread claims those of its own contiguous range in order, then
// steals from the others. run() returns once every chunk is done and never waits for a thread that
// has claimed nothing, so a thread that the system keeps off its core costs one chunk at most. Idle
// threads spin for kSpinMicroseconds, then sleep.
//
// Used by one thread at a time. This header pulls in nothing that a file with its own instruction
// set could instantiate.
class ThreadPool {
 public:
  static constexpr int kThreadsMax = 1024;
  static constexpr int kChunksPerThread = 8;
  static constexpr int kSpinMicroseconds = 50;

  // Works on [begin, end); `thread` in [0, threads()) tells which scratch memory to use.
  using Body = void (*)(void* context, int64_t begin, int64_t end, int thread);

  // threads in [1, kThreadsMax].
  explicit ThreadPool(int threads);
  ~ThreadPool();  // joins at once; not while run() is under way
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // From now on each thread, the caller first, stays on a processor of its own, of those that the
  // caller may use. False, and nothing is changed: they are fewer than the threads.
  bool pin();

  // Calls body on ranges that cover [0, n) once each. Every range begins at a multiple of `grain`
  // (>= 1); there are at most kChunksPerThread * threads() of them. With one range or one thread
  // the caller does it all, in one call. `body` must not throw.
  void run(int64_t n, int64_t grain, Body body, void* context);

 private:
  struct State;
  int threads_;
  State* state_;
};

// The same for a callable: f(begin, end, thread). Anonymous callables keep it local to its file.
template <class F>
void parallel_for(ThreadPool& pool, int64_t n, int64_t grain, F& f) {
  pool.run(
      n, grain,
      [](void* context, int64_t begin, int64_t end, int thread) {
        (*static_cast<F*>(context))(begin, end, thread);
      },
      &f);
}

}  // namespace headrace::kernels
