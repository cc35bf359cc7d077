#pragma once

#include <map>
#include <string>

#include "tests/sim/cast.h"

namespace headrace::sim {

// What must hold always. README.md lists it.
class Judge {
 public:
  explicit Judge(Cast& cast) : cast_(cast) {}

  // After each task of a worker or of the coordinator.
  void look(const std::string& process);
  void look_at_deadlines();  // now and then
  void look_at_end();        // once everything has ended and come to rest

 private:
  struct Answer {
    SimOracle oracle;
    uint32_t size = 0;  // tokens judged
    WorkerId worker{};  // who decodes the attempt, as of the last look
    bool attempted = false;
  };
  struct Pool {
    const SimProcess* process = nullptr;
    uint64_t steps = 0;
  };
  Instant latest(const SimClient& client) const;  // when it must have been told its end
  void look_at_worker(Slot& slot);
  void look_at_step(const Slot& slot);
  void look_at_logs();
  void judge_tokens(const std::string& who, Answer& answer, const std::vector<Token>& tokens,
                    const Sampling& sampling);
  uint64_t salt_of(WorkerId worker) const;
  void judge_end(size_t i, const SimClient& client);
  void judge_complete(const std::string& who, const SimClient& client, const Sampling& sampling);

  Cast& cast_;
  std::map<std::string, Pool> pools_;
  std::map<RequestId, Answer> answers_;
};

}  // namespace headrace::sim
