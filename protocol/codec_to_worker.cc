#include "protocol/codec_parts.h"

namespace headrace {
namespace codec {
namespace {

unsigned count(size_t size) { return static_cast<unsigned>(size); }

to_worker::Welcome read(Cursor& c, wire::Welcome::Reader r) {
  return {Term{r.getTerm()}, WorkerId{r.getWorker()}, c.at("beatEvery").duration(r.getBeatEvery()),
          c.at("cacheKey").id<CacheKey>(r.getCacheKey())};
}

to_worker::Rejected read(Cursor& c, wire::Rejected::Reader r) {
  return {c.at("why").status(r.getWhy())};
}

to_worker::Ping read(Cursor& c, wire::Ping::Reader r) {
  return {Term{r.getTerm()}, c.at("live").transfers(r.getLive()), r.getPrefixSeen(), r.getNumber()};
}

to_worker::FetchTokenizer read(Cursor& c, wire::FetchTokenizer::Reader r) {
  return {c.at("digest").id<Digest>(r.getDigest()), r.getOffset()};
}

Sampling read_sampling(Cursor& c, wire::Sampling::Reader r) {
  Sampling s;
  s.temperature = r.getTemperature();
  s.top_k = r.getTopK();
  s.top_p = r.getTopP();
  s.min_p = r.getMinP();
  s.seed = r.getSeed();
  s.presence_penalty = r.getPresencePenalty();
  s.frequency_penalty = r.getFrequencyPenalty();
  s.repetition_penalty = r.getRepetitionPenalty();
  c.at("sampling.bias");
  const auto bias = r.getBias();
  s.bias.reserve(c.size(bias.size(), limits::kLogitBias));
  for (auto b : bias) s.bias.push_back({b.getId(), b.getValue()});
  c.at("sampling.logprobs");
  s.logprobs = static_cast<uint32_t>(c.size(r.getLogprobs(), limits::kLogprobs));
  return s;
}

to_worker::Prepare read(Cursor& c, wire::Prepare::Reader r) {
  to_worker::Prepare m;
  m.term = Term{r.getTerm()};
  m.worker = c.at("worker").id<Incarnation>(r.getWorker());
  m.request = c.at("request").id<RequestId>(r.getRequest());
  m.transfer = c.at("transfer").id<TransferId>(r.getTransfer());
  m.attempt = Attempt{r.getAttempt()};
  m.prompt = c.at("prompt").tokens(r.getPrompt(), limits::kPromptTokens);
  m.generated = r.getGenerated();
  m.max_tokens = r.getMaxTokens();
  c.at("sampling");
  m.sampling = read_sampling(c, r.getSampling());
  m.end_tokens = c.at("endTokens").tokens(r.getEndTokens(), limits::kEndTokens);
  m.remote_prefill = r.getRemotePrefill();
  m.kv_digest = r.getKvDigest();
  m.deadline = c.at("deadline").duration(r.getDeadline());
  m.cache_salt = r.getCacheSalt();
  return m;
}

to_worker::Start read(Cursor& c, wire::Start::Reader r) {
  to_worker::Start m;
  m.term = Term{r.getTerm()};
  m.worker = c.at("worker").id<Incarnation>(r.getWorker());
  m.request = c.at("request").id<RequestId>(r.getRequest());
  m.transfer = c.at("transfer").id<TransferId>(r.getTransfer());
  m.attempt = Attempt{r.getAttempt()};
  m.tokens = c.at("tokens").tokens(r.getTokens(), limits::kPromptTokens);
  m.grant = c.at("grant").granted(r.getGrant());
  m.deadline = c.at("deadline").duration(r.getDeadline());
  m.cache_salt = r.getCacheSalt();
  return m;
}

to_worker::Cancel read(Cursor& c, wire::Cancel::Reader r) {
  return {Term{r.getTerm()}, c.at("transfer").id<TransferId>(r.getTransfer()),
          Attempt{r.getAttempt()}, c.at("reason").status(r.getReason())};
}

void write(wire::ToWorker::Builder b, const to_worker::Welcome& m) {
  auto w = b.initWelcome();
  w.setTerm(raw(m.term));
  w.setWorker(raw(m.worker));
  w.setBeatEvery(wire_duration(m.beat_every));
  codec::write(w.initCacheKey(), m.cache_key);
}

void write(wire::ToWorker::Builder b, const to_worker::Rejected& m) {
  codec::write(b.initRejected().initWhy(), m.why);
}

void write(wire::ToWorker::Builder b, const to_worker::Ping& m) {
  auto w = b.initPing();
  w.setTerm(raw(m.term));
  codec::write(w.initLive(count(m.live.size())), m.live);
  w.setPrefixSeen(m.prefix_seen);
  w.setNumber(m.number);
}

void write(wire::ToWorker::Builder b, const to_worker::FetchTokenizer& m) {
  auto w = b.initFetchTokenizer();
  codec::write(w.initDigest(), m.digest);
  w.setOffset(m.offset);
}

void write_sampling(wire::Sampling::Builder b, const Sampling& s) {
  b.setTemperature(s.temperature);
  b.setTopK(s.top_k);
  b.setTopP(s.top_p);
  b.setMinP(s.min_p);
  b.setSeed(s.seed);
  b.setPresencePenalty(s.presence_penalty);
  b.setFrequencyPenalty(s.frequency_penalty);
  b.setRepetitionPenalty(s.repetition_penalty);
  auto bias = b.initBias(count(s.bias.size()));
  for (unsigned i = 0; i < bias.size(); ++i) {
    bias[i].setId(s.bias[i].id);
    bias[i].setValue(s.bias[i].bias);
  }
  b.setLogprobs(s.logprobs);
}

void write(wire::ToWorker::Builder b, const to_worker::Prepare& m) {
  auto w = b.initPrepare();
  w.setTerm(raw(m.term));
  codec::write(w.initWorker(), m.worker);
  codec::write(w.initRequest(), m.request);
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  codec::write(w.initPrompt(count(m.prompt.size())), m.prompt);
  w.setGenerated(m.generated);
  w.setMaxTokens(m.max_tokens);
  write_sampling(w.initSampling(), m.sampling);
  codec::write(w.initEndTokens(count(m.end_tokens.size())), m.end_tokens);
  w.setRemotePrefill(m.remote_prefill);
  w.setKvDigest(m.kv_digest);
  w.setDeadline(wire_duration(m.deadline));
  w.setCacheSalt(m.cache_salt);
}

void write(wire::ToWorker::Builder b, const to_worker::Start& m) {
  auto w = b.initStart();
  w.setTerm(raw(m.term));
  codec::write(w.initWorker(), m.worker);
  codec::write(w.initRequest(), m.request);
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  codec::write(w.initTokens(count(m.tokens.size())), m.tokens);
  codec::write(w.initGrant(), m.grant);
  w.setDeadline(wire_duration(m.deadline));
  w.setCacheSalt(m.cache_salt);
}

void write(wire::ToWorker::Builder b, const to_worker::Cancel& m) {
  auto w = b.initCancel();
  w.setTerm(raw(m.term));
  codec::write(w.initTransfer(), m.transfer);
  w.setAttempt(raw(m.attempt));
  codec::write(w.initReason(), m.reason);
}

// About how many bytes the lists of a message take; everything else fits the spare room.
template <class M>
size_t list_bytes(const M&) {
  return 0;
}
size_t list_bytes(const to_worker::Ping& m) { return m.live.size() * 16; }
size_t list_bytes(const to_worker::Prepare& m) {
  return m.prompt.size() * 4 + m.sampling.bias.size() * 8;
}
size_t list_bytes(const to_worker::Start& m) {
  return m.tokens.size() * 4 + m.grant.blocks.size() * 8;
}

template <class M>
Bytes encode_one(const M& m) {
  Writer writer(list_bytes(m));
  write(writer.root<wire::ToWorker>(), m);
  return writer.finish();
}

}  // namespace

ToWorker read_to_worker(Cursor& c, wire::ToWorker::Reader r) {
  switch (r.which()) {
    case wire::ToWorker::WELCOME:
      return read(c.message("Welcome"), r.getWelcome());
    case wire::ToWorker::REJECTED:
      return read(c.message("Rejected"), r.getRejected());
    case wire::ToWorker::PING:
      return read(c.message("Ping"), r.getPing());
    case wire::ToWorker::FETCH_TOKENIZER:
      return read(c.message("FetchTokenizer"), r.getFetchTokenizer());
    case wire::ToWorker::PREPARE:
      return read(c.message("Prepare"), r.getPrepare());
    case wire::ToWorker::START:
      return read(c.message("Start"), r.getStart());
    case wire::ToWorker::CANCEL:
      return read(c.message("Cancel"), r.getCancel());
  }
  c.refuse("unknown kind of message " + std::to_string(static_cast<unsigned>(r.which())));
}

}  // namespace codec

Bytes encode(const ToWorker& message) {
  return std::visit([](const auto& m) { return codec::encode_one(m); }, message);
}

}  // namespace headrace
