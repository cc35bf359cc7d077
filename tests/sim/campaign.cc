#include "tests/sim/campaign.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "protocol/check.h"
#include "tests/sim/seeds.h"

namespace headrace::sim {
namespace {

Campaign run_here(uint64_t from, uint64_t seeds, uint64_t stride,
                  const std::function<void(uint64_t)>& at) {
  Campaign c;
  for (uint64_t i = 0; i < seeds && c.failures.size() < Campaign::kFailuresMax; i += stride) {
    at(from + i);
    c.add(from + i, run_cluster(options_of(from + i)));
  }
  return c;
}

// Lines of "word value text"; the text is last and may hold blanks.
std::string to_lines(const Campaign& c) {
  std::ostringstream out;
  out << "seeds " << c.seeds << "\nevents " << c.events << "\nseconds " << c.seconds << "\nsettled "
      << c.settled_max << '\n';
  for (size_t s = 0; s < kStates; ++s)
    for (size_t f = 0; f < kFaults; ++f)
      out << "met " << s << ' ' << f << ' ' << c.coverage.met[s][f] << '\n';
  for (const auto& [what, n] : c.counts) out << "count " << n << ' ' << what << '\n';
  for (const auto& [what, n] : c.errors) out << "error " << n << ' ' << what << '\n';
  for (const auto& f : c.failures)
    for (const auto& p : f.problems) out << "problem " << f.seed << ' ' << p << '\n';
  out << "whole\n";
  return out.str();
}

// Adds what a job wrote. False: it did not come to its end.
bool add_lines(Campaign& c, const std::string& text) {
  std::istringstream in(text);
  std::string line;
  bool whole = false;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    uint64_t n = 0;
    double x = 0;
    std::string rest;
    if (word == "whole") {
      whole = true;
    } else if (word == "seeds" && words >> n) {
      c.seeds += n;
    } else if (word == "events" && words >> n) {
      c.events += n;
    } else if (word == "seconds" && words >> x) {
      c.seconds += x;
    } else if (word == "settled" && words >> x) {
      c.settled_max = std::max(c.settled_max, x);
    } else if (word == "met") {
      size_t s = 0;
      size_t f = 0;
      words >> s >> f >> n;
      c.coverage.met[s][f] += n;
    } else if (words >> n) {
      std::getline(words >> std::ws, rest);
      if (word == "count") c.counts[rest] += n;
      if (word == "error") c.errors[rest] += n;
      if (word != "problem") continue;
      if (c.failures.empty() || c.failures.back().seed != n) c.failures.push_back({n, {}});
      c.failures.back().problems.push_back(rest);
    }
  }
  return whole;
}

// A job's results wait in a nameless file; its first bytes tell which seed it is at.
constexpr size_t kAtBytes = 32;
struct Job {
  pid_t pid = 0;
  std::FILE* file = nullptr;
};

Job begin_job(uint64_t from, uint64_t seeds, uint64_t stride) {
  std::FILE* file = std::tmpfile();
  CHECK(file != nullptr);
  std::fflush(nullptr);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid > 0) return {pid, file};
  const int fd = fileno(file);
  const Campaign c = run_here(from, seeds, stride, [&](uint64_t seed) {
    char line[kAtBytes] = {};
    std::snprintf(line, sizeof line, "%llu", static_cast<unsigned long long>(seed));
    if (pwrite(fd, line, sizeof line, 0) != static_cast<ssize_t>(sizeof line)) _exit(3);
  });
  const std::string text = to_lines(c);
  const ssize_t n = pwrite(fd, text.data(), text.size(), kAtBytes);
  _exit(n == static_cast<ssize_t>(text.size()) ? 0 : 3);
}

std::string read_all(std::FILE* file) {
  std::string out;
  char buffer[4096];
  off_t offset = 0;
  for (ssize_t n = 0; (n = pread(fileno(file), buffer, sizeof buffer, offset)) > 0; offset += n)
    out.append(buffer, static_cast<size_t>(n));
  std::fclose(file);
  return out;
}

}  // namespace

void Campaign::add(uint64_t seed, ClusterReport report) {
  ++seeds;
  coverage += report.coverage;
  for (const auto& [what, n] : report.counts) counts[what] += n;
  for (const auto& [what, n] : report.errors) errors[what] += n;
  seconds += report.seconds;
  settled_max = std::max(settled_max, report.settled);
  events += report.events;
  if (!report.problems.empty()) failures.push_back({seed, std::move(report.problems)});
}

std::string Campaign::summary() const {
  std::ostringstream out;
  out << seeds << " seeds, " << static_cast<uint64_t>(seconds) << " virtual seconds, " << events
      << " events, " << failures.size() << " violations, " << coverage.reached() << " of "
      << Coverage::possible() << " pairs reached; settled within " << settled_max << " s\n ";
  for (const auto& [what, n] : counts) out << ' ' << what << ' ' << n << ',';
  std::string text = out.str();
  text.back() = '\n';
  return text;
}

Campaign run_campaign(uint64_t from, uint64_t seeds, unsigned jobs) {
  if (jobs <= 1) return run_here(from, seeds, 1, [](uint64_t) {});
  std::vector<Job> running;
  for (unsigned j = 0; j < jobs && j < seeds; ++j)
    running.push_back(begin_job(from + j, seeds - j, jobs));
  Campaign all;
  for (const Job& job : running) {
    int status = 0;
    waitpid(job.pid, &status, 0);
    const std::string text = read_all(job.file);
    if (text.size() > kAtBytes && add_lines(all, text.substr(kAtBytes))) continue;
    const uint64_t at = std::strtoull(text.c_str(), nullptr, 10);
    all.failures.push_back({at, {"the process died of status " + std::to_string(status)}});
  }
  return all;
}

}  // namespace headrace::sim
