#include "deploy/cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "coordinator/utf8.h"
#include "deploy/cli/line_writer.h"

namespace headrace::cli {

namespace {

constexpr auto kLineEvery = std::chrono::seconds(5);
constexpr int kBarCells = 30;

// Lives until the process is gone: threads may still have something to say at its end.
std::atomic<LineWriter*> aside = nullptr;

void write_error(std::string text) {
  if (LineWriter* const writer = aside.load()) return writer->write(std::move(text));
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// Nothing in it moves a terminal, or is no text: words may come from files and from others.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  for (size_t bad; (bad = coordinator::first_invalid_utf8(text)) != std::string::npos;)
    text[bad] = '?';
  return text;
}

// One write a line, so that lines of several processes do not mix.
void write_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  write_error(printable(std::move(text)) + '\n');
}

// Events that only say that nothing will ever be read there again.
constexpr short kGone = POLLERR | POLLHUP | POLLNVAL;

}  // namespace

void write_aside() {
  if (aside.load()) return;
  aside = new LineWriter(STDERR_FILENO);
  std::atexit([] { aside.load()->flush(LineWriter::kFlushWithin); });
}

void say(std::string_view line) { write_line("headrace: " + std::string(line)); }

void mark(std::string_view words) { write_line("@" + std::string(words)); }

int fail(const Status& status) {
  say(status.message.empty() ? std::string(name(status.code)) : status.message);
  return kExitFailed;
}

int fail_usage(std::string_view what) {
  say(what);
  return kExitUsage;
}

void print_json(const nlohmann::ordered_json& value) {
  const std::string text =
      value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool stdout_works() {
  pollfd out{STDOUT_FILENO, 0, 0};
  return std::ferror(stdout) == 0 && (poll(&out, 1, 0) <= 0 || (out.revents & kGone) == 0);
}

OutputWatch::OutputWatch(std::function<void()> gone) {
  if (pipe(stop_) != 0) return;  // then only writes will tell
  thread_ = std::thread([stop = stop_[0], gone = std::move(gone)] {
    pollfd ends[] = {{STDOUT_FILENO, 0, 0}, {stop, 0, 0}};
    while (poll(ends, 2, -1) < 0 && errno == EINTR) {
    }
    if ((ends[0].revents & kGone) != 0) gone();
  });
}

OutputWatch::~OutputWatch() {
  if (!thread_.joinable()) return;
  close(stop_[1]);
  thread_.join();
  close(stop_[0]);
}

std::string hex(uint64_t high, uint64_t low) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

std::string human_bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, bytes, units[unit]);
  return text;
}

ProgressBar::ProgressBar(std::string title, bool machine)
    : title_(std::move(title)),
      machine_(machine),
      terminal_(!machine && isatty(STDERR_FILENO) != 0),
      last_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() { finish(); }

void ProgressBar::show(double share) {
  const int hundredths = static_cast<int>(std::clamp(share, 0.0, 1.0) * 100);
  if (hundredths == hundredths_) return;
  hundredths_ = hundredths;
  const std::string percent = std::to_string(hundredths) + " %";
  if (machine_) {
    char text[32];
    std::snprintf(text, sizeof text, "load %.2f", hundredths / 100.0);
    mark(text);
  } else if (terminal_) {
    const int full = hundredths * kBarCells / 100;
    const std::string bar =
        "\r" + title_ + " [" + std::string(full, '#') + std::string(kBarCells - full, '.') + "] ";
    write_error(bar + percent + " ");
    drawn_ = true;
  } else if (const auto now = std::chrono::steady_clock::now(); now - last_ >= kLineEvery) {
    last_ = now;
    say(title_ + " " + percent);
  }
}

void ProgressBar::finish() {
  if (drawn_) write_error("\r\033[K");
  drawn_ = false;
}

}  // namespace headrace::cli
