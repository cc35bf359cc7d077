#pragma once

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/coordinator_node.h"
#include "protocol/asio_runtime.h"
#include "protocol/codec.h"
#include "protocol/local_network.h"
#include "worker/model_engine.h"
#include "worker/worker_node.h"

namespace headrace::worker {

// An engine that notes the digest of the logits behind each sampled token, by (seed, index).
class RecordingEngine final : public Engine {
 public:
  using Log = std::map<std::pair<uint64_t, uint32_t>, Digest>;

  explicit RecordingEngine(std::unique_ptr<ModelEngine> inner) : inner_(std::move(inner)) {}
  const ModelCard& card() const override { return inner_->card(); }
  uint32_t blocks() const override { return inner_->blocks(); }
  uint32_t rows_max() const override { return inner_->rows_max(); }
  std::span<const std::byte> read_block(BlockId id, size_t offset, size_t bytes) override {
    return inner_->read_block(id, offset, bytes);
  }
  std::byte* host_block(BlockId id) override { return inner_->host_block(id); }
  kernels::BlockCopies* copies() override { return inner_->copies(); }
  void lost(const std::string& why) override { inner_->lost(why); }
  void run(Step step, std::function<void(StepDone)> done) override {
    auto noting = notes(step, std::move(done));
    inner_->run(std::move(step), std::move(noting));
  }
  bool prepare(Step next, std::function<void(StepDone)> done) override {
    auto noting = notes(next, std::move(done));
    return inner_->prepare(std::move(next), std::move(noting));
  }
  bool withdraw() override { return inner_->withdraw(); }
  // Once nothing runs any more. What was sampled twice had the same logits, unless contradicted().
  const Log& log() const { return log_; }
  bool contradicted() const { return contradicted_; }

 private:
  // Called on the engine's thread, before a prepared step begins.
  std::function<void(StepDone)> notes(const Step& step, std::function<void(StepDone)> done) {
    std::vector<std::pair<uint64_t, uint32_t>> keys;
    for (const auto& s : step.sequences) keys.emplace_back(s.sampling.seed, s.index);
    return [this, keys = std::move(keys), d = std::move(done)](StepDone result) {
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto& logits = inner_->last_logits().at(i);
        if (logits.empty()) continue;
        const XXH128_hash_t h = XXH3_128bits(logits.data(), logits.size() * sizeof(float));
        const Digest digest{h.high64, h.low64};
        const auto [at, fresh] = log_.emplace(keys[i], digest);
        contradicted_ = contradicted_ || (!fresh && at->second != digest);
      }
      d(std::move(result));
    };
  }

  std::unique_ptr<ModelEngine> inner_;
  Log log_;
  bool contradicted_ = false;
};

// What one worker has done, to be read from any thread.
struct Counting final : Probes {
  void prefix(uint32_t, uint32_t hit) override {
    ++admitted;
    hits += hit;
  }
  void preempted() override { ++preemptions; }
  std::atomic<uint64_t> admitted = 0;
  std::atomic<uint64_t> hits = 0;  // tokens
  std::atomic<uint64_t> preemptions = 0;
};

// Waits on the test's own thread for one answer.
class WaitingClient final : public coordinator::ClientPort {
 public:
  void on(coordinator::Chunk chunk) override {
    std::lock_guard lock(mutex_);
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    dispatcher.tell(coordinator::Acknowledge{request, static_cast<uint32_t>(ids.size())});
    changed_.notify_all();
  }
  void on(coordinator::Ended e) override {
    std::lock_guard lock(mutex_);
    ended = std::move(e);
    over_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(120), [this] { return over_; });
  }
  bool wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(120),
                             [&] { return over_ || ids.size() >= n; });
  }

  RequestId request;
  Ref<coordinator::Dispatcher> dispatcher;
  std::vector<Token> ids;
  coordinator::Ended ended;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

struct RealOptions {
  uint32_t prefill = 0;
  uint32_t decode = 0;
  uint32_t both = 0;
  bool tcp = false;
  uint32_t token_budget = 512;
  size_t batch = 1;  // requests asked at a time
  uint32_t blocks = 420;
  bool cache = true;
  size_t kill_after = 0;  // tokens of the first request of a batch, then worker `victim` dies
  size_t victim = 0;
  kernels::CpuPath path = kernels::best_cpu_path();
  std::function<std::unique_ptr<kernels::Device>()> device{};  // another than a CPU of that path
};

struct RealRequest {
  std::vector<Token> prompt;
  uint32_t max_tokens = 0;
  Sampling sampling;
  std::string salt{};
};

struct RealAnswer {
  std::vector<Token> ids;
  Digest kv;
  Finish finish = Finish::kNone;
  Status status;
  bool remote = false;
  uint32_t cached_tokens = 0;
};

// Coordinator, workers and a real model in one process, on real threads, over memory or TCP.
class RealCluster {
 public:
  RealCluster(std::shared_ptr<const ModelFile> file, const RealOptions& options)
      : file_(std::move(file)), options_(options), tcp_(runtime_) {
    const auto tokenizer = std::make_shared<const Bytes>(encode(file_->tokenizer()));
    coordinator::CoordinatorOptions c;
    c.dispatcher.pd =
        options.prefill > 0 ? coordinator::PdMode::kAlways : coordinator::PdMode::kNever;
    coordinator_ = coordinator::CoordinatorNode::start(runtime_.make_strand(), network(), random_,
                                                       std::move(c))
                       .value();
    add(options.prefill, Role::kPrefill, tokenizer);
    add(options.decode, Role::kDecode, tokenizer);
    add(options.both, Role::kBoth, tokenizer);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60),
                      [this] { return joined_ + refusals_.size() == nodes_.size(); });
    all_joined_ = joined_ == nodes_.size();
  }
  ~RealCluster() { stop(); }

  bool all_joined() const { return all_joined_; }
  // Why workers were not let in.
  std::vector<std::string> refusals() {
    std::lock_guard lock(mutex_);
    return refusals_;
  }

  std::vector<RealAnswer> ask(const std::vector<RealRequest>& requests) {
    std::vector<RealAnswer> answers;
    for (size_t from = 0; from < requests.size(); from += options_.batch) {
      std::vector<std::shared_ptr<WaitingClient>> clients;
      for (size_t i = from; i < std::min(from + options_.batch, requests.size()); ++i) {
        clients.push_back(submit(requests[i]));
      }
      if (options_.kill_after > 0 && clients.front()->wait_for_tokens(options_.kill_after)) {
        nodes_.at(options_.victim).reset();
      }
      for (const auto& client : clients) {
        if (!client->wait()) return {};
        answers.push_back({client->ids, client->ended.kv, client->ended.finish,
                           client->ended.status, client->ended.remote_prefill,
                           client->ended.usage.cached_tokens});
      }
    }
    return answers;
  }

  // Ends it; then the logits of all workers together.
  RecordingEngine::Log logits() {
    stop();
    RecordingEngine::Log all;
    for (const auto& engine : engines_) all.insert(engine->log().begin(), engine->log().end());
    return all;
  }
  // After logits(): some engine sampled one token twice from different logits.
  bool contradicted() const {
    return std::any_of(engines_.begin(), engines_.end(),
                       [](const auto& e) { return e->contradicted(); });
  }
  const Counting& counted(size_t worker) const { return *counted_.at(worker); }

 private:
  Network& network() { return options_.tcp ? static_cast<Network&>(tcp_) : local_; }

  void add(uint32_t n, Role role, const std::shared_ptr<const Bytes>& tokenizer) {
    for (uint32_t i = 0; i < n; ++i) {
      EngineOptions e;
      e.block_tokens = 16;
      e.blocks = options_.blocks;
      e.keep_logits = true;
      auto engine = ModelEngine::create(
          file_, options_.device ? options_.device() : kernels::make_cpu_device(options_.path, 1),
          e);
      engines_.push_back(std::make_unique<RecordingEngine>(std::move(engine).value()));
      WorkerOptions o;
      o.name = std::string(name(role)) + "-" + std::to_string(i);
      o.role = role;
      o.token_budget = options_.token_budget;
      o.prefix_cache = options_.cache;
      counted_.push_back(std::make_shared<Counting>());
      o.probes = counted_.back();
      MeshEvents events;
      events.joined = [this](WorkerId) {
        std::lock_guard lock(mutex_);
        ++joined_;
        changed_.notify_all();
      };
      events.rejected = [this](const Status& why) {
        std::lock_guard lock(mutex_);
        refusals_.push_back(why.message);
        changed_.notify_all();
      };
      nodes_.push_back(std::make_unique<WorkerNode>(runtime_.make_strand(), network(), random_,
                                                    *engines_.back(), o, tokenizer,
                                                    coordinator_->mesh(), events));
      nodes_.back()->start();
    }
  }

  std::shared_ptr<WaitingClient> submit(const RealRequest& request) {
    auto client = std::make_shared<WaitingClient>();
    client->request = random_.mint<RequestId>();
    client->dispatcher = coordinator_->dispatcher();
    coordinator::Submit s;
    s.request = client->request;
    s.prompt = request.prompt;
    s.seed = request.sampling.seed;
    s.sampling = request.sampling;
    s.max_tokens = request.max_tokens;
    s.kv_digest = true;
    s.cache_salt = request.salt;
    s.ignore_eos = true;
    s.deadline = 100s;
    s.client = Ref<coordinator::ClientPort>(client_strand_, client);
    coordinator_->dispatcher().tell(std::move(s));
    return client;
  }

  void stop() {
    nodes_.clear();
    coordinator_ = nullptr;
    runtime_.stop();
  }

  std::shared_ptr<const ModelFile> file_;
  RealOptions options_;
  OsRandom random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t joined_ = 0;
  std::vector<std::string> refusals_;
  bool all_joined_ = false;
  std::vector<std::unique_ptr<RecordingEngine>> engines_;
  std::vector<std::shared_ptr<Counting>> counted_;
  AsioRuntime runtime_{2};
  LocalNetwork local_;
  AsioNetwork tcp_;
  std::shared_ptr<Strand> client_strand_ = runtime_.make_strand();
  std::unique_ptr<coordinator::CoordinatorNode> coordinator_;
  std::vector<std::unique_ptr<WorkerNode>> nodes_;
};

}  // namespace headrace::worker
