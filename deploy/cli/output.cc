#include "deploy/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace headrace::cli {

namespace {

constexpr auto kLineEvery = std::chrono::seconds(5);
constexpr int kBarCells = 30;

// One write a line, so that lines of several processes do not mix.
void write_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

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
    std::fputs((bar + percent + " ").c_str(), stderr);
    std::fflush(stderr);
    drawn_ = true;
  } else if (const auto now = std::chrono::steady_clock::now(); now - last_ >= kLineEvery) {
    last_ = now;
    say(title_ + " " + percent);
  }
}

void ProgressBar::finish() {
  if (drawn_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
  drawn_ = false;
}

}  // namespace headrace::cli
