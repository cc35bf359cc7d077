#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/slowdown.h"
#include "protocol/strand.h"
#include "worker/handoff_wire.h"

namespace headrace::worker {

// Waits and bounds of the KV channel. Defaults are for a LAN. Whoever runs many processes on few
// cores may stretch the waits; none may be endless.
struct HandoffOptions {
  Duration dial = 1s;
  Duration hello = 1s * kSlowdown;  // from the connection to hello (D), from hello to its ack (P)
  Duration alive_every = 250ms;     // with nothing else to send
  Duration silence = 1500ms * kSlowdown;  // without a frame of the peer: it is taken for dead
  Duration progress = 30s;                // D: without a byte of KV, though the peer lives
  Duration verdict = 2s * kSlowdown;      // P: from commit, or KV that D says has come, to verdict
  Duration stall = 5s;   // P: with KV to send and the link taking none; D: with slots announced
  Duration whole = 30s;  // P: from the last block computed to the commit, from there to the verdict
  size_t window_bytes = 4u << 20;  // P: queued in the link before it waits for the peer to read
  size_t slice_bytes = kSliceBytesMax;
  uint32_t streams = 1;            // P: channels of a hand-off, at most kHandoffStreamsMax
  uint32_t connections_max = 128;  // D: open at a time, twice the transfers of one stream
};

}  // namespace headrace::worker
