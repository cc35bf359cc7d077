#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace headrace::cli {

// Lines to a descriptor that may stand still (a pipe that nobody reads, a terminal after Ctrl-S):
// whoever writes never waits. A thread of its own writes them, one write(2) a line. The descriptor
// stays as it is: O_NONBLOCK would also be set for whoever shares its open file.
//
// Of lines that come while kWaitingMax wait, all are left out until the reader goes on; then one
// line says how many. From any thread.
class LineWriter {
 public:
  static constexpr size_t kWaitingMax = 1024;           // lines
  static constexpr size_t kBytesMax = size_t{1} << 20;  // of those that wait
  static constexpr std::chrono::milliseconds kFlushWithin{500};

  explicit LineWriter(int descriptor);
  // Waits for kFlushWithin at most; what is not written by then never is, once the process ends.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;

  // `text` as it is, its newline included.
  void write(std::string text);
  // True: all is written, or nobody will ever read it.
  bool flush(std::chrono::milliseconds within);

 private:
  struct Shared;
  static void run(Shared& shared);

  // The thread's too, which a writer that ends may leave behind in a write.
  std::shared_ptr<Shared> shared_;
};

}  // namespace headrace::cli
