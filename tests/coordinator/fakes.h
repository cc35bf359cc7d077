#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/dispatcher.h"
#include "coordinator/tokenizer_fetch.h"
#include "protocol/random.h"

// What the coordinator's tests put in place of the world: a strand stepped by hand, workers that
// only remember what they were told, a tokenizer of bytes, a client that keeps what it got.
namespace headrace::coordinator::fakes {

// Tasks and timers run when the test says so; time stands still in between.
class ManualStrand final : public Strand {
 public:
  Instant now() const override { return now_; }
  void post(Task task) override {
    if (!stopped_) tasks_.push_back(std::move(task));
  }
  Timer after(Duration delay, Task task) override {
    auto pending = std::make_unique<Pending>();
    pending->live = std::make_shared<bool>(true);
    timers_.emplace(now_ + delay, Due{pending->live, std::move(task)});
    return Timer(std::move(pending));
  }

  // The end: nothing runs any more. What waits is destroyed, which breaks cycles through us.
  void stop() {
    stopped_ = true;
    const auto tasks = std::exchange(tasks_, {});
    const auto timers = std::exchange(timers_, {});
  }

  // Runs what was posted, and what that posts, until nothing is left.
  void drain() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  // Lets time pass, timer by timer.
  void advance(Duration by) {
    const Instant end = now_ + by;
    drain();
    while (!timers_.empty() && timers_.begin()->first <= end) {
      auto node = timers_.extract(timers_.begin());
      now_ = std::max(now_, node.key());
      if (*node.mapped().live) node.mapped().task();
      drain();
    }
    now_ = end;
  }
  // A task that takes so long: nothing else runs meanwhile.
  void stall(Duration by) { now_ += by; }

 private:
  struct Pending final : Timer::Pending {
    ~Pending() override { *live = false; }
    std::shared_ptr<bool> live;
  };
  struct Due {
    std::shared_ptr<bool> live;
    Task task;
  };
  bool stopped_ = false;
  Instant now_{1000s};
  std::deque<Task> tasks_;
  std::multimap<Instant, Due> timers_;
};

// Each byte of a text is the token of that number; 256 is a leading token that `special` adds, 257
// the end. Ids below 256 come out as their byte, others as nothing.
class ByteText final : public TextModel {
 public:
  Result<std::vector<Token>> encode(const Prompt& prompt, bool special) const override {
    if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) return *ids;
    std::string text;
    if (const auto* plain = std::get_if<std::string>(&prompt)) text = *plain;
    if (const auto* messages = std::get_if<std::vector<ChatMessage>>(&prompt))
      for (const ChatMessage& m : *messages) text += m.role + ":" + m.content + ";";
    std::vector<Token> ids;
    if (special) ids.push_back(256);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::string> decode(std::span<const Token> ids) const override {
    std::string text;
    for (const Token id : ids) {
      if (id < 0 || id > 257) return error(Errc::kInvalid, "id " + std::to_string(id));
      if (id < 256) text += static_cast<char>(id);
    }
    return text;
  }
  std::unique_ptr<TextCutter> cutter() const override {
    struct Cutter final : TextCutter {
      std::string push(std::span<const Token> ids) override { return *ByteText().decode(ids); }
      std::string finish() override { return "."; }  // stands for what is held back
    };
    return std::make_unique<Cutter>();
  }
  const std::vector<Token>& end_tokens() const override { return ends_; }
  bool has_chat() const override { return true; }

 private:
  std::vector<Token> ends_ = {257};
};

inline TextModelFactory byte_text_factory() {
  return [](std::span<const std::byte>) -> Result<std::shared_ptr<const TextModel>> {
    return std::shared_ptr<const TextModel>(std::make_shared<ByteText>());
  };
}

inline Bytes tokenizer_bytes() { return Bytes(1000, std::byte{7}); }

inline ModelCard card() {
  ModelCard card;
  card.name = "Fake 1M";
  card.architecture = "llama";
  card.weights = {0xAB12, 1};
  card.tokenizer = digest_of(tokenizer_bytes());
  card.layers = 2;
  card.vocab = 258;
  card.context = 512;
  card.block_tokens = 16;
  card.block_bytes = 1024;
  card.kv_layout = "f16";
  card.numerics = "fake";
  card.cost.kv_token_bytes = 64;
  return card;
}

inline to_coordinator::Register hello(Role role, uint64_t number) {
  to_coordinator::Register hello;
  hello.card = card();
  hello.role = role;
  hello.incarnation = {number, number};
  hello.name = std::string(name(role)) + "-" + std::to_string(number);
  hello.device = "fake";
  hello.pid = 1000 + number;
  hello.kv = {"127.0.0.1", static_cast<uint16_t>(9000 + number)};
  hello.kv_blocks = 100;
  hello.limits.f32_flops_per_second = 1e12;
  return hello;
}

class Client final : public ClientPort {
 public:
  void on(Chunk chunk) override {
    if (chunk.position != ids.size() || ended) broken = true;
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    text += chunk.text;
    ++chunks;
  }
  void on(Ended end) override {
    if (ended) broken = true;
    text += end.text;
    ended = std::move(end);
  }
  std::vector<Token> ids;
  std::string text;
  std::optional<Ended> ended;
  int chunks = 0;
  bool broken = false;  // a gap, a repeat, or something after the end
};

// Keeps the lines of the log.
class Events final : public EventLog {
 public:
  void write(Event, const std::string& line) override { lines.push_back(line); }
  // How many begin so.
  static int count(const std::vector<std::string>& lines, std::string_view words) {
    int n = 0;
    for (const std::string& line : lines) n += line.starts_with(words) ? 1 : 0;
    return n;
  }
  std::vector<std::string> lines;
};

// Stands for the mesh door and all workers behind it.
class Mesh final : public MeshPort {
 public:
  void on(SendToWorker m) override {
    if (const auto* ping = std::get_if<to_worker::Ping>(&m.message))
      pings[raw(m.worker)] = ping->number;
    sent[raw(m.worker)].push_back(std::move(m.message));
  }
  void on(DropWorker m) override { dropped.push_back(m.worker); }
  std::map<uint64_t, std::vector<ToWorker>> sent;
  std::map<uint64_t, uint64_t> pings;  // the last one of each
  std::vector<WorkerId> dropped;
};

// A Dispatcher with everything around it.
struct Bench {
  explicit Bench(DispatcherOptions options = {}, TextModelFactory factory = byte_text_factory())
      : dispatcher(std::make_shared<Dispatcher>(strand, random, Ref<MeshPort>(strand, mesh),
                                                std::move(factory), options)),
        ref(strand, dispatcher) {
    ref.tell(BeginSweeps{});
    strand->drain();
  }

  template <class M>
  void tell(M message) {
    ref.tell(std::move(message));
    strand->drain();
  }
  template <class M>
  void from(uint64_t worker, M message) {
    tell(FromWorker{WorkerId{worker}, ToCoordinator(std::move(message))});
  }

  // A worker joins; the first one is asked for the tokenizer, which it sends.
  void join(Role role, uint64_t number) { join(hello(role, number), number); }
  void join(to_coordinator::Register who, uint64_t number) {
    tell(WorkerJoined{WorkerId{number}, who});
    incarnations[number] = who.incarnation;
    if (last<to_worker::FetchTokenizer>(number)) {
      const Bytes bytes = tokenizer_bytes();
      from(number, to_coordinator::TokenizerPiece{digest_of(bytes), 0, bytes.size(), bytes});
    }
  }
  void lose(uint64_t worker) {
    tell(WorkerLost{WorkerId{worker}, error(Errc::kDisconnected, "closed")});
    incarnations.erase(worker);
  }

  // Time passes while all workers beat, as if each step they run ends.
  void live(Duration by, bool progress = true) {
    for (Duration done{0}; done < by; done += 100ms) {
      for (auto& [number, incarnation] : incarnations) {
        to_coordinator::Beat beat = beats[number];
        beat.incarnation = incarnation;
        if (progress) ++steps[number];
        beat.steps = steps[number];
        if (!deaf.contains(number)) beat.ping_seen = mesh->pings[number];
        if (!forgetful.contains(number)) beat.transfers = holds(number);
        from(number, beat);
      }
      strand->advance(100ms);
    }
  }

  // The same with nothing to do, for long times: fewer beats, that name no transfer.
  void idle(Duration by) {
    for (Duration done{0}; done < by; done += 500ms) {
      for (const auto& [number, incarnation] : incarnations) {
        to_coordinator::Beat beat = beats[number];
        beat.incarnation = incarnation;
        beat.steps = steps[number];
        if (!deaf.contains(number)) beat.ping_seen = mesh->pings[number];
        from(number, beat);
      }
      strand->advance(500ms);
      mesh->sent.clear();
    }
  }

  // What it was given and was not told to end: a worker names it in its beats.
  std::vector<TransferId> holds(uint64_t worker) {
    std::set<TransferId> out;
    for (const ToWorker& m : mesh->sent[worker]) {
      if (const auto* p = std::get_if<to_worker::Prepare>(&m)) out.insert(p->transfer);
      if (const auto* s = std::get_if<to_worker::Start>(&m)) out.insert(s->transfer);
      if (const auto* c = std::get_if<to_worker::Cancel>(&m)) out.erase(c->transfer);
    }
    return {out.begin(), out.end()};
  }

  std::shared_ptr<Client> submit(Prompt prompt, uint64_t id = 1,
                                 std::optional<uint32_t> max_tokens = {}) {
    Submit m;
    m.request = {id, id};
    m.prompt = std::move(prompt);
    m.max_tokens = max_tokens;
    m.seed = 5;
    return submit(std::move(m));
  }
  std::shared_ptr<Client> submit(Submit m) {
    auto client = std::make_shared<Client>();
    m.client = Ref<ClientPort>(strand, client);
    tell(std::move(m));
    return client;
  }
  void acknowledge(uint64_t id, uint32_t position) { tell(Acknowledge{{id, id}, position}); }

  // The last message of a kind that this worker was sent.
  template <class M>
  const M* last(uint64_t worker) const {
    const M* found = nullptr;
    if (auto it = mesh->sent.find(worker); it != mesh->sent.end())
      for (const ToWorker& m : it->second)
        if (const M* one = std::get_if<M>(&m)) found = one;
    return found;
  }
  template <class M>
  int count(uint64_t worker) const {
    int n = 0;
    if (auto it = mesh->sent.find(worker); it != mesh->sent.end())
      for (const ToWorker& m : it->second) n += std::holds_alternative<M>(m) ? 1 : 0;
    return n;
  }

  // Answers of a decode worker to its last Prepare.
  void grant(uint64_t worker) {
    const auto& p = *last<to_worker::Prepare>(worker);
    GrantedBlocks blocks{incarnations[worker], hello(Role::kDecode, worker).kv, {1, 1}, {}};
    for (uint32_t b = 0; b * 16 < p.prompt.size(); ++b)
      blocks.blocks.push_back({BlockId{b}, Generation{++generation}});
    from(worker, to_coordinator::Grant{p.transfer, p.attempt, blocks});
  }
  void owned(uint64_t worker, uint64_t bytes = 0, Duration wire = {}) {
    const auto& p = *last<to_worker::Prepare>(worker);
    from(worker, to_coordinator::Owned{p.transfer, p.attempt, bytes, wire});
  }
  void prefill_done(uint64_t worker) {
    const auto& s = *last<to_worker::Start>(worker);
    from(worker, to_coordinator::PrefillDone{s.transfer, s.attempt, 1ms, 10});
  }
  to_coordinator::TokenRun run_of(uint64_t worker, uint32_t position, std::string_view text,
                                  Finish finish = Finish::kNone) const {
    const auto& p = *last<to_worker::Prepare>(worker);
    to_coordinator::TokenRun run;
    run.transfer = p.transfer;
    run.attempt = p.attempt;
    run.position = position;
    for (const char c : text) run.ids.push_back(static_cast<unsigned char>(c));
    run.finish = finish;
    return run;
  }
  void tokens(uint64_t worker, uint32_t position, std::string_view text,
              Finish finish = Finish::kNone) {
    from(worker, to_coordinator::Tokens{{run_of(worker, position, text, finish)}});
  }

  ClusterStatus status() {
    struct Keep final : ReplyPort<ClusterStatus> {
      void on(ClusterStatus s) override { kept = std::move(s); }
      ClusterStatus kept;
    };
    auto keep = std::make_shared<Keep>();
    tell(AskStatus{Ref<ReplyPort<ClusterStatus>>(strand, keep)});
    return keep->kept;
  }

  std::shared_ptr<ManualStrand> strand = std::make_shared<ManualStrand>();
  SeededRandom random{42};
  std::shared_ptr<Mesh> mesh = std::make_shared<Mesh>();
  std::shared_ptr<Dispatcher> dispatcher;
  Ref<Dispatcher> ref;
  std::map<uint64_t, Incarnation> incarnations;
  std::map<uint64_t, to_coordinator::Beat> beats;  // what to say
  std::map<uint64_t, uint64_t> steps;
  std::set<uint64_t> deaf;       // no Ping reaches them
  std::set<uint64_t> forgetful;  // their beats name no transfer but those in `beats`
  uint32_t generation = 0;       // of the last block that was granted
};

}  // namespace headrace::coordinator::fakes
