#include <cmath>

#include "protocol/codec_parts.h"

namespace headrace {
namespace codec {
namespace {

unsigned count(size_t size) { return static_cast<unsigned>(size); }

MachineLimits read_limits(Cursor& c, wire::MachineLimits::Reader r) {
  MachineLimits m;
  c.at("limits.read");
  const auto points = r.getRead();
  c.size(points.size(), limits::kReadPoints);
  for (auto p : points) m.read.push_back({p.getWorkingSet(), p.getBytesPerSecond()});
  m.int8_ops_per_second = r.getInt8OpsPerSecond();
  m.f32_flops_per_second = r.getF32FlopsPerSecond();
  m.link_bytes_per_second = r.getLinkBytesPerSecond();
  m.bf16_flops_per_second = r.getBf16FlopsPerSecond();
  return m;
}

ModelCost read_cost(wire::ModelCost::Reader r) {
  return {r.getWeightBytes(), r.getKvTokenBytes(),   r.getFlopsPerToken(),
          r.getHeadFlops(),   r.getAttentionFlops(), r.getQuantized()};
}

ModelCard read_card(Cursor& c, wire::ModelCard::Reader r) {
  ModelCard m;
  m.name = c.at("card.name").text(r.getName());
  m.architecture = c.at("card.architecture").text(r.getArchitecture());
  m.weights = c.at("card.weights").id<Digest>(r.getWeights());
  m.tokenizer = c.at("card.tokenizer").id<Digest>(r.getTokenizer());
  m.layers = r.getLayers();
  m.dim = r.getDim();
  m.ffn = r.getFfn();
  m.heads = r.getHeads();
  m.kv_heads = r.getKvHeads();
  m.head_dim = r.getHeadDim();
  m.vocab = r.getVocab();
  m.context = r.getContext();
  m.block_tokens = r.getBlockTokens();
  m.block_bytes = r.getBlockBytes();
  m.kv_layout = c.at("card.kvLayout").text(r.getKvLayout());
  m.numerics = c.at("card.numerics").text(r.getNumerics());
  c.at("card.cost");
  m.cost = read_cost(r.getCost());
  return m;
}

to_coordinator::Register read(Cursor& c, wire::Register::Reader r) {
  to_coordinator::Register m;
  c.at("card");
  m.card = read_card(c, r.getCard());
  m.role = c.at("role").role(r.getRole());
  m.incarnation = c.at("incarnation").id<Incarnation>(r.getIncarnation());
  m.name = c.at("name").text(r.getName());
  m.device = c.at("device").text(r.getDevice());
  m.pid = r.getPid();
  m.kv = c.at("kv").endpoint(r.getKv());
  m.metrics = c.at("metrics").endpoint(r.getMetrics());
  m.kv_blocks = r.getKvBlocks();
  c.at("limits");
  m.limits = read_limits(c, r.getLimits());
  return m;
}

BlockCounts read_counts(wire::BlockCounts::Reader r) {
  return {r.getTotal(),    r.getFree(),   r.getActive(),     r.getCached(),
          r.getIncoming(), r.getPinned(), r.getQuarantined()};
}

// A wall of a newer peer is none that we know.
Saturation read_saturation(wire::Saturation::Reader r) {
  const bool known = r.getWall() <= static_cast<uint8_t>(Wall::kGaps);
  return {r.getBandwidth(), r.getCompute(),
          known ? static_cast<Wall>(r.getWall()) : Wall::kUnknown};
}

std::vector<PrefixEvent> read_events(Cursor& c, capnp::List<wire::PrefixEvent>::Reader r) {
  std::vector<PrefixEvent> events;
  events.reserve(c.size(r.size(), limits::kPrefixEvents));
  for (auto e : r) {
    if (e.getKind() > static_cast<uint8_t>(PrefixEvent::Kind::kReset))
      c.refuse("unknown kind " + std::to_string(e.getKind()));
    events.push_back({static_cast<PrefixEvent::Kind>(e.getKind()), e.getHash()});
  }
  return events;
}

to_coordinator::Beat read(Cursor& c, wire::Beat::Reader r) {
  to_coordinator::Beat m;
  m.incarnation = c.at("incarnation").id<Incarnation>(r.getIncarnation());
  m.steps = r.getSteps();
  c.at("blocks");
  m.blocks = read_counts(r.getBlocks());
  m.running = r.getRunning();
  m.waiting = r.getWaiting();
  m.waiting_tokens = r.getWaitingTokens();
  m.context_tokens = r.getContextTokens();
  m.transfers = c.at("transfers").transfers(r.getTransfers());
  m.loop_lag = c.at("loopLag").duration(r.getLoopLag());
  c.at("correction");
  const auto correction = r.getCorrection();
  m.correction = {correction.getPrefill(), correction.getDecode(),
                  c.at("correction.overhead").duration(correction.getOverhead())};
  m.draining = r.getDraining();
  c.at("prefill");
  m.prefill = read_saturation(r.getPrefill());
  c.at("decode");
  m.decode = read_saturation(r.getDecode());
  m.prefix_from = r.getPrefixFrom();
  m.prefix_events = read_events(c.at("prefixEvents"), r.getPrefixEvents());
  m.ping_seen = r.getPingSeen();
  return m;
}

to_coordinator::TokenizerPiece read(Cursor& c, wire::TokenizerPiece::Reader r) {
  return {c.at("digest").id<Digest>(r.getDigest()), r.getOffset(), r.getTotal(),
          c.at("bytes").data(r.getBytes(), limits::kPieceBytes)};
}

to_coordinator::Grant read(Cursor& c, wire::Grant::Reader r) {
  return {c.at("transfer").id<TransferId>(r.getTransfer()), Attempt{r.getAttempt()},
          c.at("granted").granted(r.getGranted())};
}

to_coordinator::Refuse read(Cursor& c, wire::Refuse::Reader r) {
  return {c.at("transfer").id<TransferId>(r.getTransfer()), Attempt{r.getAttempt()},
          c.at("why").status(r.getWhy())};
}

to_coordinator::PrefillDone read(Cursor& c, wire::PrefillDone::Reader r) {
  return {c.at("transfer").id<TransferId>(r.getTransfer()), Attempt{r.getAttempt()},
          c.at("compute").duration(r.getCompute()), r.getBytes(), r.getCachedTokens()};
}

to_coordinator::Owned read(Cursor& c, wire::Owned::Reader r) {
  return {c.at("transfer").id<TransferId>(r.getTransfer()), Attempt{r.getAttempt()}, r.getBytes(),
          c.at("wire").duration(r.getWire())};
}

to_coordinator::AttemptFailed read(Cursor& c, wire::AttemptFailed::Reader r) {
  return {c.at("transfer").id<TransferId>(r.getTransfer()), Attempt{r.getAttempt()},
          c.at("why").status(r.getWhy())};
}

// They go on to clients as they are, so what is no number ends here.
float finite(const Cursor& c, float value) {
  if (!std::isfinite(value)) c.refuse(std::to_string(value) + " is not finite");
  return value;
}

Logprobs read_logprobs(Cursor& c, wire::Logprobs::Reader r) {
  Logprobs l;
  l.chosen = finite(c, r.getChosen());
  const auto top = r.getTop();
  l.top.reserve(c.size(top.size(), limits::kLogprobs));
  for (auto t : top) l.top.push_back({t.getId(), finite(c, t.getValue())});
  return l;
}

to_coordinator::TokenRun read_run(Cursor& c, wire::TokenRun::Reader r) {
  to_coordinator::TokenRun m;
  m.transfer = c.at("runs.transfer").id<TransferId>(r.getTransfer());
  m.attempt = Attempt{r.getAttempt()};
  m.position = r.getPosition();
  m.ids = c.at("runs.ids").tokens(r.getIds(), limits::kRunTokens);
  m.finish = c.at("runs.finish").finish(r.getFinish());
  m.status = c.at("runs.status").status(r.getStatus());
  m.cached_tokens = r.getCachedTokens();
  m.kv = c.at("runs.kv").id<Digest>(r.getKv());
  c.at("runs.logprobs");
  const auto logprobs = r.getLogprobs();
  if (logprobs.size() != 0 && logprobs.size() != m.ids.size())
    c.refuse(std::to_string(logprobs.size()) + " entries for " + std::to_string(m.ids.size()) +
             " ids");
  m.logprobs.reserve(logprobs.size());
  for (auto l : logprobs) m.logprobs.push_back(read_logprobs(c, l));
  return m;
}

to_coordinator::Tokens read(Cursor& c, wire::Tokens::Reader r) {
  to_coordinator::Tokens m;
  c.at("runs");
  const auto runs = r.getRuns();
  m.runs.reserve(c.size(runs.size(), limits::kRuns));
  for (auto run : runs) m.runs.push_back(read_run(c, run));
  return m;
}

to_coordinator::Quiesced read(Cursor& c, wire::Quiesced::Reader r) {
  return {c.at("transfer").id<TransferId>(r.getTransfer()), Attempt{r.getAttempt()},
          r.getBlocksFreed()};
}

void write_limits(wire::MachineLimits::Builder b, const MachineLimits& m) {
  auto points = b.initRead(count(m.read.size()));
  for (unsigned i = 0; i < points.size(); ++i) {
    points[i].setWorkingSet(m.read[i].working_set);
    points[i].setBytesPerSecond(m.read[i].bytes_per_second);
  }
  b.setInt8OpsPerSecond(m.int8_ops_per_second);
  b.setF32FlopsPerSecond(m.f32_flops_per_second);
  b.setLinkBytesPerSecond(m.link_bytes_per_second);
  b.setBf16FlopsPerSecond(m.bf16_flops_per_second);
}

void write_card(wire::ModelCard::Builder b, const ModelCard& m) {
  b.setName(wire_text(m.name));
  b.setArchitecture(wire_text(m.architecture));
  codec::write(b.initWeights(), m.weights);
  codec::write(b.initTokenizer(), m.tokenizer);
  b.setLayers(m.layers);
  b.setDim(m.dim);
  b.setFfn(m.ffn);
  b.setHeads(m.heads);
  b.setKvHeads(m.kv_heads);
  b.setHeadDim(m.head_dim);
  b.setVocab(m.vocab);
  b.setContext(m.context);
  b.setBlockTokens(m.block_tokens);
  b.setBlockBytes(m.block_bytes);
  b.setKvLayout(wire_text(m.kv_layout));
  b.setNumerics(wire_text(m.numerics));
  auto cost = b.initCost();
  cost.setWeightBytes(m.cost.weight_bytes);
  cost.setKvTokenBytes(m.cost.kv_token_bytes);
  cost.setFlopsPerToken(m.cost.flops_per_token);
  cost.setHeadFlops(m.cost.head_flops);
  cost.setAttentionFlops(m.cost.attention_flops);
  cost.setQuantized(m.cost.quantized);
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Register& m) {
  auto w = b.initRegister();
  write_card(w.initCard(), m.card);
  w.setRole(static_cast<uint8_t>(m.role));
  codec::write(w.initIncarnation(), m.incarnation);
  w.setName(wire_text(m.name));
  w.setDevice(wire_text(m.device));
  w.setPid(m.pid);
  codec::write(w.initKv(), m.kv);
  codec::write(w.initMetrics(), m.metrics);
  w.setKvBlocks(m.kv_blocks);
  write_limits(w.initLimits(), m.limits);
}

void write_saturation(wire::Saturation::Builder b, const Saturation& m) {
  b.setBandwidth(m.bandwidth);
  b.setCompute(m.compute);
  b.setWall(static_cast<uint8_t>(m.wall));
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Beat& m) {
  auto w = b.initBeat();
  codec::write(w.initIncarnation(), m.incarnation);
  w.setSteps(m.steps);
  auto blocks = w.initBlocks();
  blocks.setTotal(m.blocks.total);
  blocks.setFree(m.blocks.free);
  blocks.setActive(m.blocks.active);
  blocks.setCached(m.blocks.cached);
  blocks.setIncoming(m.blocks.incoming);
  blocks.setPinned(m.blocks.pinned);
  blocks.setQuarantined(m.blocks.quarantined);
  w.setRunning(m.running);
  w.setWaiting(m.waiting);
  w.setWaitingTokens(m.waiting_tokens);
  w.setContextTokens(m.context_tokens);
  codec::write(w.initTransfers(count(m.transfers.size())), m.transfers);
  w.setLoopLag(wire_duration(m.loop_lag));
  auto correction = w.initCorrection();
  correction.setPrefill(m.correction.prefill);
  correction.setDecode(m.correction.decode);
  correction.setOverhead(wire_duration(m.correction.overhead));
  w.setDraining(m.draining);
  write_saturation(w.initPrefill(), m.prefill);
  write_saturation(w.initDecode(), m.decode);
  w.setPrefixFrom(m.prefix_from);
  w.setPingSeen(m.ping_seen);
  auto events = w.initPrefixEvents(count(m.prefix_events.size()));
  for (unsigned i = 0; i < events.size(); ++i) {
    events[i].setKind(static_cast<uint8_t>(m.prefix_events[i].kind));
    events[i].setHash(m.prefix_events[i].hash);
  }
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::TokenizerPiece& m) {
  auto w = b.initTokenizerPiece();
  codec::write(w.initDigest(), m.digest);
  w.setOffset(m.offset);
  w.setTotal(m.total);
  w.setBytes(wire_data(m.bytes));
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Grant& m) {
  auto w = b.initGrant();
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  codec::write(w.initGranted(), m.granted);
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Refuse& m) {
  auto w = b.initRefuse();
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  codec::write(w.initWhy(), m.why);
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::PrefillDone& m) {
  auto w = b.initPrefillDone();
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  w.setCompute(wire_duration(m.compute));
  w.setBytes(m.bytes);
  w.setCachedTokens(m.cached_tokens);
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Owned& m) {
  auto w = b.initOwned();
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  w.setBytes(m.bytes);
  w.setWire(wire_duration(m.wire));
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::AttemptFailed& m) {
  auto w = b.initAttemptFailed();
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  codec::write(w.initWhy(), m.why);
}

void write_logprobs(wire::Logprobs::Builder b, const Logprobs& l) {
  b.setChosen(l.chosen);
  auto top = b.initTop(count(l.top.size()));
  for (unsigned i = 0; i < top.size(); ++i) {
    top[i].setId(l.top[i].id);
    top[i].setValue(l.top[i].logprob);
  }
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Tokens& m) {
  auto runs = b.initTokens().initRuns(count(m.runs.size()));
  for (unsigned i = 0; i < runs.size(); ++i) {
    auto w = runs[i];
    const to_coordinator::TokenRun& run = m.runs[i];
    codec::write(w.initTransfer(), run.transfer);
    w.setAttempt(raw(run.attempt));
    w.setPosition(run.position);
    codec::write(w.initIds(count(run.ids.size())), run.ids);
    w.setFinish(static_cast<uint8_t>(run.finish));
    codec::write(w.initStatus(), run.status);
    w.setCachedTokens(run.cached_tokens);
    codec::write(w.initKv(), run.kv);
    auto logprobs = w.initLogprobs(count(run.logprobs.size()));
    for (unsigned k = 0; k < logprobs.size(); ++k) write_logprobs(logprobs[k], run.logprobs[k]);
  }
}

void write(wire::ToCoordinator::Builder b, const to_coordinator::Quiesced& m) {
  auto w = b.initQuiesced();
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  w.setBlocksFreed(m.blocks_freed);
}

// About how many bytes the lists of a message take; everything else fits the spare room.
template <class M>
size_t list_bytes(const M&) {
  return 0;
}
size_t list_bytes(const to_coordinator::Beat& m) {
  return m.transfers.size() * 16 + m.prefix_events.size() * 16;
}
size_t list_bytes(const to_coordinator::TokenizerPiece& m) { return m.bytes.size(); }
size_t list_bytes(const to_coordinator::Grant& m) { return m.granted.blocks.size() * 8; }
size_t list_bytes(const to_coordinator::Tokens& m) {
  size_t bytes = 0;
  for (const auto& run : m.runs) {
    bytes += 160 + run.ids.size() * 4 + run.status.message.size();
    for (const auto& l : run.logprobs) bytes += 24 + l.top.size() * 8;
  }
  return bytes;
}

template <class M>
Bytes encode_one(const M& m) {
  Writer writer(list_bytes(m));
  write(writer.root<wire::ToCoordinator>(), m);
  return writer.finish();
}

}  // namespace

ToCoordinator read_to_coordinator(Cursor& c, wire::ToCoordinator::Reader r) {
  using W = wire::ToCoordinator;
  switch (r.which()) {
    case W::REGISTER:
      return read(c.message("Register"), r.getRegister());
    case W::BEAT:
      return read(c.message("Beat"), r.getBeat());
    case W::TOKENIZER_PIECE:
      return read(c.message("TokenizerPiece"), r.getTokenizerPiece());
    case W::GRANT:
      return read(c.message("Grant"), r.getGrant());
    case W::REFUSE:
      return read(c.message("Refuse"), r.getRefuse());
    case W::PREFILL_DONE:
      return read(c.message("PrefillDone"), r.getPrefillDone());
    case W::OWNED:
      return read(c.message("Owned"), r.getOwned());
    case W::ATTEMPT_FAILED:
      return read(c.message("AttemptFailed"), r.getAttemptFailed());
    case W::TOKENS:
      return read(c.message("Tokens"), r.getTokens());
    case W::QUIESCED:
      return read(c.message("Quiesced"), r.getQuiesced());
  }
  c.refuse("unknown kind of message " + std::to_string(static_cast<unsigned>(r.which())));
}

}  // namespace codec

Bytes encode(const ToCoordinator& message) {
  return std::visit([](const auto& m) { return codec::encode_one(m); }, message);
}

}  // namespace headrace
