#include "protocol/codec.h"

#include "protocol/codec_common.h"
#include "protocol/codec_parts.h"

namespace headrace {

Result<ToWorker> decode_to_worker(std::span<const std::byte> frame) {
  ToWorker message;
  codec::Cursor cursor("ToWorker");
  Status status =
      codec::read_frame(frame, limits::kFrameBytes, cursor, [&](capnp::MessageReader& reader) {
        message = codec::read_to_worker(cursor, reader.getRoot<wire::ToWorker>());
      });
  if (!status.ok()) return status;
  return message;
}

Result<ToCoordinator> decode_to_coordinator(std::span<const std::byte> frame) {
  ToCoordinator message;
  codec::Cursor cursor("ToCoordinator");
  Status status =
      codec::read_frame(frame, limits::kFrameBytes, cursor, [&](capnp::MessageReader& reader) {
        message = codec::read_to_coordinator(cursor, reader.getRoot<wire::ToCoordinator>());
      });
  if (!status.ok()) return status;
  return message;
}

Result<TokenizerData> decode_tokenizer(std::span<const std::byte> bytes) {
  TokenizerData data;
  codec::Cursor cursor("TokenizerData");
  Status status =
      codec::read_frame(bytes, limits::kTokenizerBytes, cursor, [&](capnp::MessageReader& reader) {
        data = codec::read_tokenizer(cursor, reader.getRoot<wire::TokenizerData>());
      });
  if (!status.ok()) return status;
  return data;
}

}  // namespace headrace
