#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "protocol/error.h"
#include "protocol/ids.h"

namespace headrace::cli {

// Exit statuses of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// From now on what goes to stderr is written aside, see LineWriter: for commands that serve others
// and must not stand still because nobody reads what they say. At the end of the process what still
// waits is written, for LineWriter::kFlushWithin at most.
void write_aside();

// One line on stderr: "headrace: ...".
void say(std::string_view line);
// The same for an outcome that ends the command; gives the exit status.
int fail(const Status& status);
int fail_usage(std::string_view what);

// One line on stderr for a supervisor: "@words".
void mark(std::string_view words);

// One JSON value and a line end on stdout. Bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& value);
std::string hex(uint64_t high, uint64_t low);  // 32 hexadecimal digits
template <class Tag>
std::string hex(const Id128<Tag>& id) {
  return hex(id.hi, id.lo);
}

// False once stdout takes nothing more: a write failed, or whoever read it is gone.
bool stdout_works();

// Calls `gone` once, on a thread of its own, when whoever reads stdout goes away while this lives.
class OutputWatch {
 public:
  explicit OutputWatch(std::function<void()> gone);
  ~OutputWatch();
  OutputWatch(const OutputWatch&) = delete;

 private:
  int stop_[2] = {-1, -1};  // a pipe: closing its end wakes the thread
  std::thread thread_;
};

// "1.4 GB", "103 MB", "12 kB": decimal, three digits.
std::string human_bytes(double bytes);

// How far a long step is, on stderr: a bar that redraws itself on a terminal, else a line per five
// seconds. With `machine` a line "@load 0.42" whenever a hundredth is passed, for a supervisor.
class ProgressBar {
 public:
  ProgressBar(std::string title, bool machine);
  ~ProgressBar();
  void show(double share);  // 0..1
  void finish();            // wipes the bar; later calls do nothing

 private:
  std::string title_;
  bool machine_;
  bool terminal_;
  bool drawn_ = false;
  int hundredths_ = -1;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace headrace::cli
