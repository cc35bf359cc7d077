#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "protocol/link.h"

namespace headrace {

// A generous guard against hanging; no test passes or fails by how long something took.
constexpr Duration kHang = 60s;

// Runs `f` on the strand and waits for its result.
template <class F>
auto on(const std::shared_ptr<Strand>& strand, F f) {
  std::packaged_task<decltype(f())()> task(std::move(f));
  auto result = task.get_future();
  strand->post(std::move(task));
  if (result.wait_for(kHang) != std::future_status::ready) std::abort();
  return result.get();
}

// Waits until `condition`, evaluated on the strand, holds; false when it never does.
bool eventually(const std::shared_ptr<Strand>& strand, const std::function<bool()>& condition);

// One side of a link and what it saw; its members belong to the strand.
struct Side {
  explicit Side(std::shared_ptr<Strand> s) : strand(std::move(s)) {}
  ~Side() {
    on(strand, [this] { link = nullptr; });
    on(strand, [] {});  // callbacks are dropped by a later task
  }
  void adopt(std::unique_ptr<Link> l) { link = std::move(l); }
  void start();
  // Asked on the strand: the closing may be on its way.
  bool open() const {
    return on(strand, [this] { return closed.empty(); });
  }

  std::shared_ptr<Strand> strand;
  std::unique_ptr<Link> link;
  std::vector<Bytes> frames;
  std::vector<Status> closed;
  std::function<void(const Bytes&)> then;  // after each frame
};

// What every Network must keep, in memory or over TCP; `strand` makes strands, `home` is where to
// listen (port 0).
struct LinkRules {
  Network& network;
  std::function<std::shared_ptr<Strand>()> strand;
  Endpoint home;

  // Two connected sides, not started.
  struct Pair {
    std::unique_ptr<Listener> listener;
    std::shared_ptr<Strand> door;
    std::unique_ptr<Side> a;  // dialled
    std::unique_ptr<Side> b;  // accepted
    Pair() = default;
    Pair(Pair&&) = default;
    ~Pair();
  };
  Pair connect(LinkLimits a = {}, LinkLimits b = {});
  Result<std::unique_ptr<Link>> dial(const Endpoint& to, std::shared_ptr<Strand> at,
                                     Duration deadline = kHang, LinkLimits limits = {});

  void run_all();
  void frames_arrive_in_order();
  void close_sends_what_is_left();
  void destroying_tells_the_peer();
  void nothing_is_lost_before_start();
  void a_long_frame_ends_the_link();
  void a_full_queue_ends_the_link();
  void drained_is_told();
  void a_callback_may_destroy_its_link();
  void listening();
  void many_links_at_once();
  void payloads_arrive_in_their_frames();
  void frames_land();
  void a_frame_without_a_place_waits();
  void close_lets_payloads_go();
};

Bytes pattern(size_t size, int fill);

}  // namespace headrace
