@0xd3a5f1c27be94806;
# What clients of a Headrace coordinator speak. Usable from any Cap'n Proto language; a C++ client
# library is in protocol/client.h.
#
# How it grows: new members get higher ordinals, nothing changes its meaning, enums begin with
# `unspecified`. Errors of the application come as `Error` inside of results; RPC exceptions mean
# that the connection or the coordinator is broken.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("headrace::api");

struct Id @0xb0a1b8e3d2f14c01 {
  # 128 bits.
  hi @0 :UInt64;
  lo @1 :UInt64;
}

enum ErrorCode @0x9c1d7c53f0b24e02 {
  unspecified @0;
  invalid @1;           # the request is wrong; trying again will not help
  notFound @2;
  overloaded @3;        # a stated limit is reached: later
  unavailable @4;       # no worker can serve this now
  cancelled @5;
  deadline @6;          # a stated wait ran out
  disconnected @7;
  contextExceeded @8;   # the prompt is longer than the context
  numeric @9;           # the model gave NaN or infinity
  internal @10;
}

struct Error @0xa7e4d9c8b1f35d03 {
  code @0 :ErrorCode;
  message @1 :Text;     # one line for a person
  field @2 :Text;       # of the request that is at fault; empty: none in particular
  retryAfterMs @3 :UInt32;  # overloaded, unavailable: try again no sooner; 0: no use in it
}

enum FinishReason @0xe1b2c3d4f5a66e04 {
  unspecified @0;
  stop @1;              # the model's own end, a stop token or a stop string
  length @2;            # maxTokens, or the context is full
  cancelled @3;
  error @4;
}

struct ChatMessage @0xc4f8a9b7d6e57f05 {
  role @0 :Text;        # "system", "user", "assistant"
  content @1 :Text;     # letters only: control names in it stay letters
}

struct TokenList @0x95d3e2f1a0b98c06 {
  ids @0 :List(Int32);
}

struct ChatList @0x86c4b5a6d7e89f07 {
  messages @0 :List(ChatMessage);
}

struct Prompt @0xf2a1c3b5d7e91f08 {
  union {
    unspecified @0 :Void;
    text @1 :Text;
    tokens @2 :TokenList;
    chat @3 :ChatList;  # goes through the model's chat template
  }
  special @4 :Bool;     # text: recognise control names; by default they are letters
}

struct Sampling @0xd8b7a6c5e4f30a09 {
  temperature @0 :Float32 = 0;   # 0: greedy
  topK @1 :Int32 = 0;            # <= 0: all
  topP @2 :Float32 = 1;
  minP @3 :Float32 = 0;
  hasSeed @4 :Bool = false;      # else the seed is drawn at random
  seed @5 :UInt64 = 0;
  presencePenalty @6 :Float32 = 0;    # -2 to 2, of ids generated so far
  frequencyPenalty @7 :Float32 = 0;   # -2 to 2, the same times how often
  repetitionPenalty @8 :Float32 = 1;  # 0.01 to 10, of ids in prompt and answer
  logitBias @9 :List(LogitBias);      # at most 1,024, each id once
  logprobs @10 :UInt32 = 0;           # alternatives to report per token, at most 20; 0: none
}

struct LogitBias @0x9f60a1c4d72eb81b {
  id @0 :Int32;
  bias @1 :Float32;                   # -100 to 100, added to the logit
}

struct TokenLogprob @0xb3d84e57f0a1962c {
  id @0 :Int32;
  logprob @1 :Float32;           # after penalties and bias, at temperature 1; finite
}

struct Logprobs @0xe85b72f9c4d06a1d {
  chosen @0 :Float32;
  top @1 :List(TokenLogprob);    # the most probable first
}

struct GenerateRequest @0xa9c8e7f6d5b41b0a {
  prompt @0 :Prompt;
  sampling @1 :Sampling;
  maxTokens @2 :UInt32 = 0;      # only with hasMaxTokens
  hasMaxTokens @3 :Bool = false; # else: to the end of the context
  deadlineMs @4 :UInt64 = 0;     # for the whole answer; 0: the coordinator's default of 10 minutes
  kvDigest @5 :Bool = false;     # give the digest of the sequence's KV cache with the end
  requestId @6 :Id;              # drawn by the client, 128 random bits; zero: the coordinator draws
  resumable @7 :Bool = false;    # a lost client is no cancel: `resume` goes on (needs requestId)
  stop @8 :List(Text);           # the answer ends before any of these; 16 of 256 bytes at most
  includeStop @9 :Bool = false;  # ... or behind it
  stopTokens @10 :List(Int32);   # like the model's own end
  ignoreEos @11 :Bool = false;   # the model's own end is a token like others
  cacheSalt @12 :Text;           # only requests of equal salt share cached prefixes; UTF-8, 256 bytes
}

struct Chunk @0xbae9f8d7c6a52c0b {
  position @0 :UInt32;           # of ids[0] in the answer
  ids @1 :List(Int32);
  text @2 :Text;                 # what became certain: whole UTF-8 characters
  logprobs @3 :List(Logprobs);   # of each id, if asked for
}

interface TokenSink @0x8bfad9e8c7b63d0c {
  # Of the client. Returning from `write` is the credit for more: at most 64 tokens are under way.
  write @0 (chunk :Chunk) -> ();
}

struct Usage @0x9d0be1f9d8c74e0d {
  promptTokens @0 :UInt32;
  completionTokens @1 :UInt32;
  cachedTokens @2 :UInt32;
}

struct Answer @0xae1cf20ae9d85f0e {
  # The one end of a stream; all chunks were written before it.
  finish @0 :FinishReason;
  text @1 :Text;                 # what was held back, to be appended
  usage @2 :Usage;
  queueNs @3 :UInt64;            # admission to dispatch
  firstTokenNs @4 :UInt64;       # admission to the first token
  totalNs @5 :UInt64;
  remotePrefill @6 :Bool;        # a prefill worker computed the prompt
  kv @7 :Id;                     # if asked for
}

struct Model @0xbf2d031bfae9600f {
  name @0 :Text;
  architecture @1 :Text;
  digest @2 :Id;                 # of the weights
  context @3 :UInt32;            # tokens, prompt and answer together
  vocabulary @4 :UInt32;
  blockTokens @5 :UInt32;        # of a KV block
  numerics @6 :Text;
  chat @7 :Bool;                 # has a chat template that is understood
  layers @8 :UInt32;
  weightBytes @9 :UInt64;        # read once a step
  kvLayout @10 :Text;            # elements and order of a KV block: "f16 block[layer]..."
  blockBytes @11 :UInt64;        # of a KV block
}

struct Address @0xc03e142c0bfa7110 {
  host @0 :Text;
  port @1 :UInt16;               # 0: none
}

enum Role @0xd14f253d1c0b8211 {
  unspecified @0;
  prefill @1;
  decode @2;
  both @3;
}

struct BlockCounts @0xe25a364e2d1c9312 {
  total @0 :UInt32;
  free @1 :UInt32;
  active @2 :UInt32;
  cached @3 :UInt32;
  incoming @4 :UInt32;
  pinned @5 :UInt32;
  quarantined @6 :UInt32;
}

struct Worker @0xf36b475f3e2da413 {
  id @0 :UInt64;
  name @1 :Text;
  role @2 :Role;
  state @3 :Text;                # "ready", "stalled", "draining"
  pid @4 :UInt64;
  device @5 :Text;
  kv @6 :Address;
  metrics @7 :Address;
  blocks @8 :BlockCounts;
  inFlight @9 :UInt32;           # pieces of work given to it
  running @10 :UInt32;           # sequences in its batch
  steps @11 :UInt64;
  prefill @12 :Saturation;
  decode @13 :Saturation;
}

struct Saturation @0xfd2c86a9e1b7405e {
  # Of a worker's last seconds in one phase.
  bandwidth @0 :Float64;         # bytes that had to move / time / measured limit
  compute @1 :Float64;           # operations / time / measured peak
  wall @2 :Text;                 # "dram", "cache", "compute", "link", "kv_capacity", "queue", "gaps"
}

struct Totals @0x847c58604f3eb514 {
  # Since the coordinator's start.
  submitted @0 :UInt64;
  refused @1 :UInt64;
  stopped @2 :UInt64;
  cancelled @3 :UInt64;
  failed @4 :UInt64;
  tokens @5 :UInt64;
  attempts @6 :UInt64;
  attemptsFailed @7 :UInt64;
  refusals @8 :UInt64;
  remotePrefills @9 :UInt64;
  workersLost @10 :UInt64;
  stale @11 :UInt64;
  repeats @12 :UInt64;
  gaps @13 :UInt64;
  conflicts @14 :UInt64;
  resumed @15 :UInt64;
  stopMatched @16 :UInt64;       # ended by a stop text
  toldAgain @17 :UInt64;         # messages that a worker seems to have missed
  closingLost @18 :UInt64;       # cancelled attempts given up without an answer
  prefixGaps @19 :UInt64;        # beats whose prefix events do not follow those taken
  poisoned @20 :UInt64;          # requests that workers died of
}

struct Status @0x958d6971504fc615 {
  ready @0 :Bool;                # a request can be answered now
  notReady @1 :Text;             # why not
  models @2 :List(Model);
  workers @3 :List(Worker);
  running @4 :UInt32;            # requests that a worker has
  waiting @5 :UInt32;            # in the queue
  draining @6 :UInt32;           # over, their clients have not taken all
  totals @7 :Totals;
  metrics @8 :Address;           # of the coordinator
  leaving @9 :Bool;              # the coordinator is shutting down: no new requests
}

struct ServerInfo @0xa69e7a826150d716 {
  version @0 :Text;
  protocol @1 :UInt32;           # minor version of this file: 1
}

struct Generation @0xc8c09ca48372f918 {
  union {
    unspecified @0 :Void;
    ok @1 :Answer;
    error @2 :Error;
  }
}

struct Tokenized @0xd9d1ad0b94830a19 {
  union {
    unspecified @0 :Void;
    ok @1 :TokenList;
    error @2 :Error;
  }
}

struct Detokenized @0xeae2be1ca5941b1a {
  union {
    unspecified @0 :Void;
    ok @1 :Text;
    error @2 :Error;
  }
}

interface Headrace @0xb7af8b937261e817 {
  # The bootstrap. Methods that take long end when their call is dropped.

  hello @0 (client :Text) -> (server :ServerInfo);
  # `client`: a name for logs. May be called any number of times.

  models @1 () -> (models :List(Model));

  generate @2 (request :GenerateRequest, sink :TokenSink) -> (result :Generation);
  # Writes the answer into `sink` as it comes, then returns. Dropping the call cancels the request.

  tokenize @3 (prompt :Prompt) -> (result :Tokenized);

  detokenize @4 (ids :List(Int32)) -> (result :Detokenized);

  status @5 () -> (status :Status);

  resume @6 (request :Id, next :UInt32, sink :TokenSink) -> (result :Generation);
  # Goes on with a resumable request from position `next`: first what was missed, then live. The
  # connection that had it before gets `cancelled`. notFound: unknown, over for too long, or of a
  # coordinator before this one.

  cancel @7 (request :Id) -> (found :Bool);
  # Ends a request by its id, whoever made it; an answer that waits to be fetched is dropped. `found`:
  # there was one, not cancelled before. Ids do not outlive the coordinator.
}
