#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/cli/child.h"

namespace headrace::cli {

// Keeps a set of child processes alive until a signal asks for the end.
//
// One thread, one loop. A child that dies is said in one line and started again with back-off. One
// that ends by itself before up() (bad arguments, a port taken in the meantime) ends everything:
// trying again would not help. SIGTERM, SIGINT and SIGHUP stop all: SIGTERM to the first child,
// when it is gone to the others, so that the first, which the others serve, can end its work in
// peace
// (`drain` long, and kStopWithin more until SIGKILL). A second signal hurries: SIGTERM to the first
// once more, SIGKILL after kStopWithin; a third kills at once.
class Supervisor {
 public:
  static constexpr auto kStopWithin = std::chrono::seconds(5);
  static constexpr auto kTick = std::chrono::milliseconds(50);

  // From here on SIGTERM, SIGINT, SIGHUP and SIGCHLD are blocked and read by run().
  explicit Supervisor(std::string program = Child::kThisProgram);
  ~Supervisor();  // kills and awaits what is left
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts a child under this name and keeps it. An error if the system refuses.
  Status add(std::string name, std::vector<std::string> arguments);

  // Lines of a child that begin with '@' (for us, not for people): "load 0.42". All others go to
  // stderr with the child's name in front.
  std::function<void(std::string_view child, std::string_view words)> on_marker;
  // Each kTick and after each event.
  std::function<void()> on_tick;

  // How long what stops may take to end its work.
  void set_drain(std::chrono::seconds drain) { drain_ = drain; }
  // Of the child that runs under this name now; -1: none.
  pid_t pid(std::string_view name) const;
  // For a child that lives and does nothing any more: it dies, and is started again.
  void kill(std::string_view name);

  // From now on everything that dies is started again.
  void up() { up_ = true; }
  // Ends the loop as a signal would; `status` is what run() gives back.
  void stop(int status);

  // Until a signal or stop(), and until every child is gone. Gives an exit status: 0 after a
  // signal.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    std::string name;
    std::vector<std::string> arguments;
    std::optional<Child> child;
    Clock::time_point since;  // started, or (without child) when to start again
    Backoff backoff;
  };

  void wait_for_events();
  void take_signals();
  void hurry();
  void stop_rest();
  void relay(Kept& kept);
  void reap(Kept& kept);
  void start(Kept& kept);
  bool alive() const;

  std::string program_;
  int signals_ = -1;  // signalfd
  std::list<Kept> kept_;
  bool up_ = false;
  std::chrono::seconds drain_{0};
  std::optional<Clock::time_point> stopping_;  // when SIGKILL is due
  int signalled_ = 0;
  bool rest_told_ = false;
  int status_ = 0;
};

}  // namespace headrace::cli
