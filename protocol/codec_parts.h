#pragma once

#include "protocol/codec_common.h"

// The reading halves, one a source file; called by codec.cc alone.
namespace headrace::codec {

ToWorker read_to_worker(Cursor& c, wire::ToWorker::Reader r);
ToCoordinator read_to_coordinator(Cursor& c, wire::ToCoordinator::Reader r);
TokenizerData read_tokenizer(Cursor& c, wire::TokenizerData::Reader r);

}  // namespace headrace::codec
