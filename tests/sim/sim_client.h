#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/dispatcher.h"

namespace headrace::sim {

// How one client behaves.
struct ClientManners {
  Duration takes_after{};     // it acknowledges what it got so much later
  Duration abandons_after{};  // since its Submit; zero: never
  Duration leaves_after{};    // likewise: it goes away without a word...
  Duration away{};            // ... and comes back so much later
};

// Takes one answer, acknowledges as it goes, checks the stream. Lives on one strand.
class SimClient final : public std::enable_shared_from_this<SimClient> {
 public:
  SimClient(std::shared_ptr<Strand> strand, Ref<coordinator::Dispatcher> dispatcher,
            ClientManners manners, coordinator::Submit submit);

  void begin();  // on its strand

  const std::vector<Token>& prompt() const { return prompt_; }
  const std::vector<Token>& ids() const { return ids_; }
  const coordinator::Submit& submit() const { return submit_; }
  const std::vector<coordinator::Ended>& ended() const { return ended_; }
  bool over() const { return !ended_.empty(); }
  bool begun() const { return begun_ != Instant{}; }
  Instant due() const { return begun_ + submit_.deadline; }
  Instant ended_at() const { return ended_at_; }
  bool hesitates() const { return manners_.takes_after + manners_.leaves_after > Duration{0}; }
  bool abandoned() const { return abandoned_; }
  uint32_t resumed() const { return resumed_; }
  const std::string& trouble() const { return trouble_; }

 private:
  // One connection; an older one's words no longer count.
  struct Session final : coordinator::ClientPort {
    void on(coordinator::Chunk chunk) override;
    void on(coordinator::Ended e) override;
    std::weak_ptr<SimClient> client;
    uint64_t owner = 0;
    bool ended = false;
  };
  std::shared_ptr<Session> open();
  void take(Session& session, coordinator::Chunk chunk);
  void end(Session& session, coordinator::Ended e);
  void acknowledge();
  void leave();
  void come_back();

  std::shared_ptr<Strand> strand_;
  Ref<coordinator::Dispatcher> dispatcher_;
  ClientManners manners_;
  coordinator::Submit submit_;
  std::vector<Token> prompt_;
  std::vector<std::shared_ptr<Session>> sessions_;
  std::vector<Token> ids_;
  std::vector<coordinator::Ended> ended_;
  std::string trouble_;
  Instant begun_{};
  Instant ended_at_{};
  bool abandoned_ = false;
  bool away_ = false;
  uint32_t resumed_ = 0;
  Timer take_timer_, abandon_timer_, leave_timer_;
};

}  // namespace headrace::sim
