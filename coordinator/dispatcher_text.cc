// Text becomes tokens on a strand of its own, in the order of arrival: a long prompt holds up the
// prompts behind it, and nobody else.
#include <algorithm>
#include <utility>

#include "coordinator/dispatcher.h"
#include "coordinator/submit_limits.h"
#include "protocol/check.h"
#include "protocol/prefix_hash.h"

namespace headrace::coordinator {
namespace {

std::vector<uint64_t> briefs(CacheKey key, uint64_t salt, std::span<const Token> ids,
                             uint32_t block_tokens) {
  std::vector<uint64_t> out;
  for (const PrefixHash& hash : prefix_chain(key, salt, ids, block_tokens))
    out.push_back(hash.brief());
  return out;
}

}  // namespace

const std::shared_ptr<Strand>& Dispatcher::text_strand() const {
  return options_.text_strand ? options_.text_strand : strand_;
}

Status Dispatcher::text_room(size_t bytes) const {
  if (text_waiting_ + bytes <= kTextWaitingBytesMax) return {};
  return error(Errc::kOverloaded, std::to_string(kTextWaitingBytesMax) +
                                      " bytes of prompts wait to become tokens, the limit");
}

void Dispatcher::encode(Record& record) {
  Encoding& encoding = record.encoding;
  CHECK(!record.tokenized && !encoding.model && text_);
  encoding.ticket = next_ticket_++;
  encoding.model = text_;
  encoding.unwanted = std::make_shared<std::atomic<bool>>(false);
  encoding.since = strand_->now();
  TextEncoded job{record.submit.request, encoding.ticket, encoding.bytes, text_, {}, {}};
  text_strand()->post([self = Ref<Dispatcher>(strand_, weak_from_this()), job = std::move(job),
                       raw = record.raw, special = record.submit.special, salt = record.salt,
                       key = cache_key_, context = registry_.card()->context,
                       block_tokens = registry_.card()->block_tokens,
                       unwanted = encoding.unwanted]() mutable {
    if (!*unwanted) {
      job.ids = job.model->encode(*raw, special);
      if (*job.ids && (*job.ids)->size() < context)
        job.chain = briefs(key, salt, **job.ids, block_tokens);
    }
    self.tell(std::move(job));
  });
}

void Dispatcher::encode_waiting() {
  if (!text_ || !registry_.card()) return;
  for (const Rank rank : {Rank::kKnown, Rank::kStranger})
    for (Record* record : queue_.line(rank))
      if (!record->tokenized && !record->encoding.model) encode(*record);
}

void Dispatcher::drop_encoding(Record& record) {
  Encoding& encoding = record.encoding;
  if (encoding.unwanted) *encoding.unwanted = true;
  if (!encoding.model) text_waiting_ -= encoding.bytes;  // else the job gives them back
  encoding = {};
  record.raw = nullptr;
}

void Dispatcher::on(TextEncoded encoded) {
  text_waiting_ -= encoded.bytes;
  auto it = requests_.find(encoded.request);
  if (it == requests_.end() || it->second->encoding.ticket != encoded.ticket) return;
  Record& record = *it->second;
  // The model changed meanwhile, or all workers left: again, for whoever comes.
  if (encoded.model != text_ || !registry_.card()) {
    text_waiting_ += encoded.bytes;
    record.encoding.model = nullptr;
    return encode_waiting();
  }
  CHECK(encoded.ids && !record.ended);  // only what is not wanted is left out
  const Duration took = strand_->now() - record.encoding.since;
  record.encoding = {};
  record.raw = nullptr;
  probes().stage("tokenize", std::chrono::duration<double>(took).count());
  record.chain = std::move(encoded.chain);
  Status status = *encoded.ids ? tokenized(record, std::move(**encoded.ids)) : encoded.ids->error();
  if (!status.ok()) return finish(record, Finish::kError, std::move(status));
  place();
}

// Afterwards the record knows its prompt and how long its answer may be.
Status Dispatcher::tokenized(Record& record, std::vector<Token> ids) {
  const ModelCard& card = *registry_.card();
  if (ids.empty()) return error(Errc::kInvalid, "prompt is empty: it gives no token");
  for (const Token id : ids)
    if (id < 0 || static_cast<uint32_t>(id) >= card.vocab)
      return error(Errc::kInvalid, "prompt: id " + std::to_string(id) +
                                       " is outside of the vocabulary of " +
                                       std::to_string(card.vocab));
  if (ids.size() >= card.context)
    return error(Errc::kContextExceeded, "prompt has " + std::to_string(ids.size()) +
                                             " tokens, the context holds " +
                                             std::to_string(card.context));
  // The card may not have been known when it came.
  if (Status status = check_submit_ids(record.submit, card.vocab); !status.ok()) return status;
  if (poison_.size() > 0 && poison_.barred(prompt_digest(ids), strand_->now()))
    return error(Errc::kInvalid, "prompt is refused for some minutes: workers died of it");
  record.prompt = std::move(ids);
  const uint32_t room = card.context - static_cast<uint32_t>(record.prompt.size());
  record.max_tokens = std::min(record.submit.max_tokens.value_or(room), room);
  record.text.emplace(text_->cutter(),
                      StopText(std::move(record.submit.stop), record.submit.include_stop));
  record.tokenized = true;
  return {};
}

void Dispatcher::on(TextAnswered answered) { text_waiting_ -= answered.bytes; }

void Dispatcher::on(AskTokenize ask) {
  const size_t bytes = prompt_bytes(ask.prompt);
  Status bad = text_ ? check_prompt(ask.prompt) : error(Errc::kUnavailable, not_ready());
  if (bad.ok()) bad = text_room(bytes);
  if (!bad.ok()) return ask.reply.tell(Result<std::vector<Token>>(std::move(bad)));
  text_waiting_ += bytes;
  text_strand()->post([self = Ref<Dispatcher>(strand_, weak_from_this()), model = text_, bytes,
                       ask = std::move(ask)] {
    ask.reply.tell(model->encode(ask.prompt, ask.special));
    self.tell(TextAnswered{bytes});
  });
}

void Dispatcher::on(AskDetokenize ask) {
  const size_t bytes = ask.ids.size() * sizeof(Token);
  Status bad = text_ ? Status{} : error(Errc::kUnavailable, not_ready());
  if (bad.ok() && ask.ids.size() > kDetokenizeIdsMax)
    bad = error(Errc::kInvalid, "ids: there are " + std::to_string(ask.ids.size()) +
                                    ", the limit is " + std::to_string(kDetokenizeIdsMax));
  if (bad.ok()) bad = text_room(bytes);
  if (!bad.ok()) return ask.reply.tell(Result<std::string>(std::move(bad)));
  text_waiting_ += bytes;
  text_strand()->post([self = Ref<Dispatcher>(strand_, weak_from_this()), model = text_, bytes,
                       ask = std::move(ask)] {
    ask.reply.tell(model->decode(ask.ids));
    self.tell(TextAnswered{bytes});
  });
}

}  // namespace headrace::coordinator
