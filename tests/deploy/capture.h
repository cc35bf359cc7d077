#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace headrace::cli {

// Takes what is written to stdout or stderr of this process while it lives.
class Capture {
 public:
  explicit Capture(int target) : target_(target), file_(std::tmpfile()) {
    std::fflush(nullptr);
    kept_ = dup(target);
    dup2(fileno(file_), target);
  }
  ~Capture() { restore(); }
  std::string text() {
    restore();
    std::string text;
    std::rewind(file_);
    char piece[4096];
    while (const size_t n = std::fread(piece, 1, sizeof piece, file_)) text.append(piece, n);
    return text;
  }

 private:
  void restore() {
    if (kept_ < 0) return;
    std::fflush(nullptr);
    dup2(kept_, target_);
    close(kept_);
    kept_ = -1;
  }
  int target_;
  std::FILE* file_;
  int kept_ = -1;
};

}  // namespace headrace::cli
