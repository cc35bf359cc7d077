#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/client_port.h"
#include "protocol/model_card.h"
#include "protocol/time_model.h"

namespace headrace::cli {

// An answer as `run` received it, from wherever.
struct Answer {
  RequestId request;
  std::vector<Token> ids;
  std::string text;
  std::vector<Logprobs> logprobs;  // of each id, if asked for
  coordinator::Ended ended;
};

// What the decoding of an answer moved, against what the machine can.
struct Figures {
  double tokens_per_second = 0;  // of the tokens after the first
  double bytes_per_second = 0;   // weights and KV that those had to read
  double limit = 0;              // measured bytes per second at that working set; 0: not measured
  double share() const { return limit > 0 ? bytes_per_second / limit : 0; }
};
// Nothing for answers of fewer than two tokens. `limits` are those of the worker that decoded.
std::optional<Figures> figures(const Answer& answer, const ModelCost& cost,
                               const MachineLimits& limits);

// The most tokens per second that one answer of an empty context can have; 0: limits not measured.
double ceiling_tokens_per_second(const MachineLimits& limits, const ModelCost& cost);

// What the end of an answer is judged by.
struct Asked {
  std::optional<uint32_t> max_tokens;
  bool plain = false;     // a text as it is, not a message of a chat
  bool stops = false;     // stop texts or tokens were given
  bool resumed = false;   // asked elsewhere: how is not known here
  bool can_chat = false;  // the model has a chat template
  bool kv_digest = false;
};

// Why an answer that ended well ended where a person may not expect it; empty: the ordinary end.
std::string why_ended(const Answer& answer, const Asked& asked);

// Takes an answer as it comes: streams its text to stdout unless `json`, then reports.
class AnswerPrinter {
 public:
  AnswerPrinter(bool json, const RequestId& request) : json_(json) { answer_.request = request; }

  // False: stdout takes nothing any more, the rest is of no use.
  bool on(const coordinator::Chunk& chunk);
  // Ends the output: with --json one object, else a line end if the text has none; why it ended if
  // not by itself, and the figures, on stderr. Gives the exit status: kExitFailed unless the answer
  // is complete and was written.
  int finish(const coordinator::Ended& ended, const ModelCost& cost, const MachineLimits& limits,
             const Asked& asked);

  const Answer& answer() const { return answer_; }

 private:
  void report(const std::optional<Figures>& measured, const Asked& asked) const;

  bool json_;
  Answer answer_;
};

// "128 tokens, 61.2 tok/s, 5.6 GB/s, 92 % of the measured 6.1 GB/s; first token after 35 ms".
std::string summary(const Answer& answer, const std::optional<Figures>& figures);

}  // namespace headrace::cli
