# Words between the coordinator and its workers: plain structs, no interfaces. Each mirrors one
# struct of messages.h or model_card.h, where meanings and units stand. A field is added at the end
# with a fresh number and never reused (README.md).
@0xa8dcf04ba1f1c7e5;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("headrace::wire");

struct Id128 @0xbf2fe1b0c93de9a1 {
  hi @0 :UInt64;
  lo @1 :UInt64;
}

struct Status @0xd56ae4bd7bd5f0a2 {
  code @0 :UInt16;  # Errc by number; a number we do not know reads as unknown
  message @1 :Text;
}

struct Endpoint @0x9c1a9c6a3f0a4b73 {
  host @0 :Text;
  port @1 :UInt16;
}

struct BlockRef @0xe0c8ac4fd64e2144 {
  block @0 :UInt32;
  generation @1 :UInt32;
}

struct GrantedBlocks @0x8b9d3f2760c5d115 {
  decode @0 :Id128;
  endpoint @1 :Endpoint;
  key @2 :Id128;
  blocks @3 :List(BlockRef);
  firstBlock @4 :UInt32;
}

struct BlockCounts @0xf3a96c1be5720f26 {
  total @0 :UInt32;
  free @1 :UInt32;
  active @2 :UInt32;
  cached @3 :UInt32;
  incoming @4 :UInt32;
  pinned @5 :UInt32;
  quarantined @6 :UInt32;
}

struct Sampling @0xa70c52b4e9d83b37 {
  temperature @0 :Float32;
  topK @1 :Int32;
  topP @2 :Float32;
  minP @3 :Float32;
  seed @4 :UInt64;
  presencePenalty @5 :Float32;
  frequencyPenalty @6 :Float32;
  repetitionPenalty @7 :Float32 = 1;
  bias @8 :List(TokenValue);
  logprobs @9 :UInt32;
}

struct TokenValue @0xd1c6a5803be97f2a {
  id @0 :Int32;
  value @1 :Float32;
}

struct Logprobs @0x8c3e94d7a2f0b61b {
  chosen @0 :Float32;
  top @1 :List(TokenValue);
}

struct Saturation @0xe6b7f2c1905d8a3c {
  bandwidth @0 :Float64;
  compute @1 :Float64;
  wall @2 :UInt8;
}

struct PrefixEvent @0xb5a9d04c7e1f362d {
  kind @0 :UInt8;
  hash @1 :UInt64;
}

struct ReadPoint @0xc4e17f90ab26d548 {
  workingSet @0 :UInt64;
  bytesPerSecond @1 :Float64;
}

struct MachineLimits @0x96d0b83ce1574f59 {
  read @0 :List(ReadPoint);
  int8OpsPerSecond @1 :Float64;
  f32FlopsPerSecond @2 :Float64;
  linkBytesPerSecond @3 :Float64;
  bf16FlopsPerSecond @4 :Float64;
}

struct ModelCost @0xdb3749e2065ca16a {
  weightBytes @0 :UInt64;
  kvTokenBytes @1 :UInt64;
  flopsPerToken @2 :UInt64;
  headFlops @3 :UInt64;
  attentionFlops @4 :UInt64;
  quantized @5 :Bool;
}

struct Correction @0xed84f1a02b6c937b {
  prefill @0 :Float64;
  decode @1 :Float64;
  overhead @2 :Int64;  # all durations: nanoseconds
}

struct ModelCard @0xb1f60d7ce934528c {
  name @0 :Text;
  architecture @1 :Text;
  weights @2 :Id128;
  tokenizer @3 :Id128;
  layers @4 :UInt32;
  dim @5 :UInt32;
  ffn @6 :UInt32;
  heads @7 :UInt32;
  kvHeads @8 :UInt32;
  headDim @9 :UInt32;
  vocab @10 :UInt32;
  context @11 :UInt32;
  blockTokens @12 :UInt32;
  blockBytes @13 :UInt64;
  kvLayout @14 :Text;
  numerics @15 :Text;
  cost @16 :ModelCost;
}

struct TokenizerData @0x84a2de5b97c0169d {
  model @0 :Text;
  pre @1 :Text;
  tokens @2 :List(Text);
  kinds @3 :Data;  # TokenKind, a byte each
  mergesLeft @4 :List(Int32);
  mergesRight @5 :List(Int32);
  bos @6 :Int32;
  eos @7 :Int32;
  endTokens @8 :List(Int32);
  addBos @9 :Bool;
  chatTemplate @10 :Text;
}

# --- to a worker ---

struct ToWorker @0xca95b30e46f1d8ae {
  union {
    welcome @0 :Welcome;
    rejected @1 :Rejected;
    ping @2 :Ping;
    fetchTokenizer @3 :FetchTokenizer;
    prepare @4 :Prepare;
    start @5 :Start;
    cancel @6 :Cancel;
  }
}

struct Welcome @0x9e08c7d1f53ba4bf {
  term @0 :UInt64;
  worker @1 :UInt64;
  beatEvery @2 :Int64;
  cacheKey @3 :Id128;
}

struct Rejected @0xf7b1405ea8d926c0 {
  why @0 :Status;
}

struct Ping @0xa36fe29c05817bd1 {
  term @0 :UInt64;
  live @1 :List(Id128);
  prefixSeen @2 :UInt64;
  number @3 :UInt64;
}

struct FetchTokenizer @0xd84dc5b7136ef0e2 {
  digest @0 :Id128;
  offset @1 :UInt64;
}

struct Prepare @0x8f13a6e0bc4295f3 {
  term @0 :UInt64;
  worker @1 :Id128;
  request @2 :Id128;
  transfer @3 :Id128;
  attempt @4 :UInt32;
  prompt @5 :List(Int32);
  generated @6 :UInt32;
  maxTokens @7 :UInt32;
  sampling @8 :Sampling;
  endTokens @9 :List(Int32);
  remotePrefill @10 :Bool;
  kvDigest @11 :Bool;
  deadline @12 :Int64;
  cacheSalt @13 :UInt64;
}

struct Start @0xe59c7208df13b604 {
  term @0 :UInt64;
  worker @1 :Id128;
  request @2 :Id128;
  transfer @3 :Id128;
  attempt @4 :UInt32;
  tokens @5 :List(Int32);
  grant @6 :GrantedBlocks;
  deadline @7 :Int64;
  cacheSalt @8 :UInt64;
}

struct Cancel @0xb8e0d4f93a765115 {
  term @0 :UInt64;
  transfer @1 :Id128;
  attempt @2 :UInt32;
  reason @3 :Status;
}

# --- to the coordinator ---

struct ToCoordinator @0xc273b6850fe4a926 {
  union {
    register @0 :Register;
    beat @1 :Beat;
    tokenizerPiece @2 :TokenizerPiece;
    grant @3 :Grant;
    refuse @4 :Refuse;
    prefillDone @5 :PrefillDone;
    owned @6 :Owned;
    attemptFailed @7 :AttemptFailed;
    tokens @8 :Tokens;
    quiesced @9 :Quiesced;
  }
}

struct Register @0x95ef1c3d47b2d837 {
  card @0 :ModelCard;
  role @1 :UInt8;
  incarnation @2 :Id128;
  name @3 :Text;
  device @4 :Text;
  pid @5 :UInt64;
  kv @6 :Endpoint;
  metrics @7 :Endpoint;
  kvBlocks @8 :UInt32;
  limits @9 :MachineLimits;
}

struct Beat @0xfa06428ed19c7b48 {
  incarnation @0 :Id128;
  steps @1 :UInt64;
  blocks @2 :BlockCounts;
  running @3 :UInt32;
  waiting @4 :UInt32;
  waitingTokens @5 :UInt64;
  contextTokens @6 :UInt64;
  transfers @7 :List(Id128);
  loopLag @8 :Int64;
  correction @9 :Correction;
  draining @10 :Bool;
  prefill @11 :Saturation;
  decode @12 :Saturation;
  prefixFrom @13 :UInt64;
  prefixEvents @14 :List(PrefixEvent);
  pingSeen @15 :UInt64;
}

struct TokenizerPiece @0xacb8e3071f5d6259 {
  digest @0 :Id128;
  offset @1 :UInt64;
  total @2 :UInt64;
  bytes @3 :Data;
}

struct Grant @0xdfd19a74b038c56a {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  granted @2 :GrantedBlocks;
}

struct Refuse @0x87c42fe56a9b037b {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  why @2 :Status;
}

struct PrefillDone @0xe1395bd8c2f6408c {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  compute @2 :Int64;
  bytes @3 :UInt64;
  cachedTokens @4 :UInt32;
}

struct Owned @0xb4a7063fd8e1529d {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  bytes @2 :UInt64;
  wire @3 :Int64;
}

struct AttemptFailed @0xc9fd81b24e6037ae {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  why @2 :Status;
}

struct TokenRun @0x9b52ce0a7f1d68bf {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  position @2 :UInt32;
  ids @3 :List(Int32);
  finish @4 :UInt8;
  status @5 :Status;
  cachedTokens @6 :UInt32;
  kv @7 :Id128;
  logprobs @8 :List(Logprobs);
}

struct Tokens @0xf0e89d4516bc73c0 {
  runs @0 :List(TokenRun);
}

struct Quiesced @0xa1067fb8e35cd4d1 {
  transfer @0 :Id128;
  attempt @1 :UInt32;
  blocksFreed @2 :UInt32;
}
