#pragma once

#include <memory>
#include <utility>

#include "protocol/link.h"
#include "protocol/random.h"

namespace headrace::sim {

// A network on which, in frames to all but one address, now and then one bit flips. TCP's own sum
// misses about one error in 65,536; the hand-off must not.
class FlipNetwork final : public Network {
 public:
  FlipNetwork(Network& inner, Random& random, uint32_t one_in, Endpoint spared)
      : inner_(inner), random_(random), one_in_(one_in), spared_(std::move(spared)) {}

  void dial(const Endpoint& to, Duration deadline, LinkLimits limits,
            std::shared_ptr<Strand> strand,
            std::function<void(Result<std::unique_ptr<Link>>)> done) override {
    if (to == spared_) return inner_.dial(to, deadline, limits, std::move(strand), std::move(done));
    inner_.dial(to, deadline, limits, std::move(strand),
                [this, done = std::move(done)](Result<std::unique_ptr<Link>> link) {
                  if (!link) return done(std::move(link));
                  done(std::unique_ptr<Link>(std::make_unique<Flipping>(*this, std::move(*link))));
                });
  }
  Result<std::unique_ptr<Listener>> listen(
      const Endpoint& at, LinkLimits limits, std::shared_ptr<Strand> strand,
      std::function<void(std::unique_ptr<Link>)> on_accept) override {
    return inner_.listen(at, limits, std::move(strand), std::move(on_accept));
  }
  uint64_t flips() const { return flips_; }

 private:
  class Flipping final : public Link {
   public:
    Flipping(FlipNetwork& network, std::unique_ptr<Link> inner)
        : network_(network), inner_(std::move(inner)) {}
    void start(std::function<void(Bytes)> on_frame,
               std::function<void(Status)> on_closed) override {
      inner_->start(std::move(on_frame), std::move(on_closed));
    }
    void send(Bytes frame) override {
      if (network_.one_in_ > 0 && !frame.empty() &&
          network_.random_.next() % network_.one_in_ == 0) {
        const uint64_t bit = network_.random_.next() % (frame.size() * 8);
        frame[bit / 8] ^= std::byte{1} << (bit % 8);
        ++network_.flips_;
      }
      inner_->send(std::move(frame));
    }
    size_t unsent() const override { return inner_->unsent(); }
    void on_drained(size_t level, std::function<void()> callback) override {
      inner_->on_drained(level, std::move(callback));
    }
    void close() override { inner_->close(); }
    std::string peer() const override { return inner_->peer(); }

   private:
    FlipNetwork& network_;
    std::unique_ptr<Link> inner_;
  };

  Network& inner_;
  Random& random_;
  uint32_t one_in_;
  Endpoint spared_;
  uint64_t flips_ = 0;
};

}  // namespace headrace::sim
